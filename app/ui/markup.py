"""HTML that the scripts under `assets/` fill. Constant: once it is on the page, Gradio never touches it again."""

from __future__ import annotations

import html

from app.ui.icons import ICONS, icon
from app.ui.reading_markup import GO_TO


def problem(message: str, hint: str) -> str:
    """Return an error as one sentence and the way out; a command to run is set as code."""
    said = html.escape(message)
    way_out = html.escape(hint)
    if hint.startswith("pip "):
        way_out = f"Run <code>{way_out}</code>"
    return f'<div class="problem" role="alert"><p>{said} {way_out}</p></div>'


RING_ICON = """<svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true"><g fill="none" stroke-width="4"
stroke-linecap="round"><circle cx="16" cy="16" r="11" stroke="currentColor" opacity=".22"/>
<path d="M16 5a11 11 0 1 1-9.5 5.5" stroke="var(--rs-accent)"/></g></svg>"""

SIDE = f"""{ICONS}
<a class="skip-link" href="#rs-input" id="rs-skip">Skip to the text field</a>
<nav class="side scrolls" aria-label="Chats">
  <div class="side-head"><span class="brand">{RING_ICON}<span>Ringside</span></span>
    <button type="button" class="icon-button only-narrow" data-close="side"
      aria-label="Close the chats">{icon("close")}</button>
  </div>
  <button type="button" class="new-chat" id="rs-new-chat">{icon("plus")} New chat</button>
  <button type="button" class="new-chat quiet" id="rs-new-notebook">{icon("plus")}
    New notebook</button>
  <input type="search" id="rs-search" dir="auto"
    placeholder="Search chats" aria-label="Search titles and texts of all chats"
    autocomplete="off" role="combobox" aria-autocomplete="list" aria-expanded="false" aria-controls="rs-found">
  <div class="found scrolls" id="rs-found" role="listbox" aria-label="Found" hidden></div>
  <p class="visually-hidden" id="rs-found-said" role="status"></p>
  <div class="chat-scroller scrolls" id="rs-chat-scroller" tabindex="-1">
    <ul class="chat-list" id="rs-chat-list" aria-label="Chats"></ul>
    <p class="chat-list-empty" id="rs-chat-list-empty" hidden>Chats appear here. Files of chats can be imported below,
      or dropped anywhere on this page.</p>
  </div>
  <div class="chat-foot">
    <button type="button" class="text-button" id="rs-import">Import</button>
    <input type="file" id="rs-import-files" multiple hidden accept=".json,.txt,.md,.text,application/json,text/*">
    <a class="text-button" id="rs-backup" href="/app/backup" download title="All chats as one file">Back up
      everything</a>
  </div>
  <p class="side-foot"><a href="/app/compare">Compare</a><a href="/app/doctor">Doctor</a>
    <button type="button" class="text-button" id="rs-sign-out" aria-haspopup="menu" aria-expanded="false"
      hidden>Sign out</button></p>
</nav>
"""

TOP = f"""
<header class="top">
  <button type="button" class="icon-button only-narrow" data-open="side" aria-label="Chats">{icon("chats")}</button>
  <h1 class="chat-title" id="rs-title" dir="auto">New chat</h1>
  <div class="engine" id="rs-engine" role="status">
    <span class="engine-dot" data-state="empty"></span>
    <button type="button" class="engine-text" id="rs-engine-text" aria-expanded="false" disabled>No model</button>
    <span class="engine-bar" hidden><span></span></span>
    <button type="button" class="text-button" id="rs-load" hidden>Load now</button>
    <button type="button" class="text-button" id="rs-unload" hidden>Unload</button>
  </div>
  <button type="button" class="text-button" id="rs-open-settings" aria-expanded="false">Settings</button>
  <button type="button" class="icon-button" id="rs-theme" aria-label="Light or dark">{icon("theme")}</button>
  <button type="button" class="text-button only-narrow" data-open="panel">Figures</button>
</header>
<div class="engine-facts scrolls" id="rs-engine-facts" hidden></div>
<div class="notices" id="rs-notices"></div>
"""

WELCOME = f"""
<div class="welcome">
  <h2>Write for as long as you like.</h2>
  <p>A sliding-window model looks back a fixed number of tokens. Ringside keeps exactly those, so memory and speed stay
  flat however long the text gets, and the figures beside it show that they do.</p>
  <div class="demo"><button type="button" class="main-button" id="rs-demo">Run the demo</button>
  <span>A long reply with a small window. Watch the charts.</span></div>
</div>
<div class="sheet-head"><h2>Settings</h2>
  <button type="button" class="icon-button" id="rs-close-settings"
    aria-label="Close the settings">{icon("close")}</button></div>
"""

OUTLOOK = '<section class="outlook" aria-label="Before loading" id="rs-outlook-body"></section>'

OPENINGS = """
<section class="openings" aria-label="Ways to begin"><div id="rs-openings"></div></section>
"""

TRANSCRIPT = """
<div class="scroller scrolls" id="rs-scroller" tabindex="0" role="log" aria-live="off" aria-label="Conversation">
  <div class="messages" id="rs-messages" role="feed" aria-label="Messages"></div>
  <div class="end-mark" id="rs-end" aria-hidden="true"></div>
</div>
<button type="button" class="to-end" id="rs-to-end" hidden>Jump to end</button>
<div class="visually-hidden" role="status" id="rs-said"></div>
"""

_VARIANTS = "".join(f"<option>{number}</option>" for number in range(1, 9))

COMPOSER = f"""
<div class="composer">
<form id="rs-form">
  <div class="composer-problem" id="rs-composer-problem" role="alert" hidden></div>
  <div class="composer-box">
    <textarea id="rs-input" rows="1" dir="auto"
      placeholder="Write a message" aria-label="Message" maxlength="20000000"></textarea>
    <button type="submit" class="send" id="rs-send" aria-label="Send">{icon("send")}</button>
    <button type="button" class="send stop" id="rs-stop" aria-label="Stop" hidden>{icon("stop")}</button>
  </div>
</form>
<div class="composer-note">
  <label class="variants-choice" title="Write so many replies at once and pick one to continue with">Variants
    <select id="rs-variants" autocomplete="off">{_VARIANTS}</select></label>
  {GO_TO}
  <button type="button" class="text-button" id="rs-branches" aria-haspopup="dialog" hidden>Branches</button>
  <button type="button" class="text-button" id="rs-undo"
    title="Take back the last edit, variant, branch or deletion (Ctrl+Z)" hidden>Undo</button>
  <button type="button" class="text-button" id="rs-tell" aria-pressed="false" hidden>Tell me when done</button>
  <span id="rs-mode"></span>
  <span class="keys">Enter sends, Shift+Enter breaks the line</span>
</div>
</div>
"""


def _number(name: str, label: str, help_text: str) -> str:
    return (
        f'<div class="number" title="{help_text}"><dt>{label}</dt>'
        f'<dd data-number="{name}">–</dd><dd class="number-sub" data-sub="{name}"></dd></div>'
    )


_NUMBERS = "".join(
    _number(*row)
    for row in (
        ("tokens", "Tokens", "Tokens of this reply so far"),
        ("rate", "Tokens / s", "Now, smoothed over about three seconds"),
        ("first", "First token", "Time from the start of the request to the first token"),
        ("window", "Window", "Tokens that the next one can see, of those a bounded layer holds"),
        ("kv", "KV cache", "Bytes of keys and values held now"),
        ("memory", "Memory", "Memory of the process that holds the model"),
    )
)

PANEL = f"""
<aside class="panel scrolls" aria-label="Live figures">
  <div class="panel-head"><h2>Live figures</h2><span class="panel-elapsed" data-number="elapsed"></span>
    <button type="button" class="icon-button only-narrow" data-close="panel"
      aria-label="Close">{icon("close")}</button></div>
  <dl class="numbers">{_NUMBERS}</dl>
  <div class="window-bar" role="presentation"><span id="rs-window-bar"></span></div>
  <figure class="chart-card">
    <figcaption><h3>Memory over tokens</h3><span class="chart-tools">
      <button type="button" class="mini" id="rs-kv-only" aria-pressed="false"
        title="Keys and values alone on a linear axis: how far apart a ring and a full cache are">KV linear</button>
      <button type="button" class="mini" id="rs-scale" aria-pressed="true">log</button>
      <button type="button" class="mini" data-png="memory"
        aria-label="PNG of memory over tokens">PNG</button></span></figcaption>
    <div class="chart" id="rs-chart-memory"></div>
  </figure>
  <figure class="chart-card">
    <figcaption><h3>Tokens per second</h3><span class="chart-tools">
      <button type="button" class="mini" data-png="speed"
        aria-label="PNG of tokens per second">PNG</button></span></figcaption>
    <div class="chart" id="rs-chart-speed"></div>
  </figure>
  <figure class="chart-card">
    <figcaption><h3 title="Different passages of four tokens among the last 512: a text in circles falls towards 0"
      >Repetition: share of new phrases</h3><span class="chart-tools">
      <button type="button" class="mini" data-png="phrases"
        aria-label="PNG of the share of new phrases">PNG</button></span></figcaption>
    <div class="chart" id="rs-chart-phrases"></div>
    <p class="loop-notice" id="rs-loop" role="status" hidden></p>
  </figure>
  <div class="panel-foot"><div><p id="rs-saving"></p><p id="rs-snapshots"></p></div><span class="chart-tools">
    <button type="button" class="mini" id="rs-pause">Pause charts</button>
    <a class="mini" id="rs-csv" download hidden>CSV</a></span></div>
</aside>
"""
