"""HTML of the control that goes to places of a chat; `assets/go_to.js` fills it."""

from __future__ import annotations

from app.ui.icons import icon


def _arrow(name: str, label: str, drawing: str) -> str:
    return (
        f'<button type="button" class="icon-button small" id="rs-find-{name}" aria-label="{label}" disabled>'
        f"{icon(drawing)}</button>"
    )


GO_TO = f"""
<div class="go-to" id="rs-go-to" hidden>
  <button type="button" class="text-button" id="rs-go-to-open" aria-expanded="false" aria-controls="rs-go-to-box"
    aria-keyshortcuts="Control+G" title="Go to a place of this chat (Ctrl+G)">Go to</button>
  <div class="go-to-box" id="rs-go-to-box" role="dialog" aria-label="Go to" hidden>
    <div class="go-to-row">
      <input type="search" id="rs-find" dir="auto" placeholder="Find in this chat" aria-label="Find in this chat"
        autocomplete="off" spellcheck="false">
      {_arrow("previous", "Previous place", "up")}{_arrow("next", "Next place", "down")}
    </div>
    <p class="go-to-note" id="rs-find-count" role="status"></p>
    <form class="go-to-row" id="rs-go-to-share">
      <button type="button" class="mini" id="rs-go-to-start">Start</button>
      <button type="button" class="mini" id="rs-go-to-end">End</button>
      <label class="go-to-share"><input type="number" min="0" max="100" step="any" inputmode="decimal"
        aria-label="Percent of the text"> %</label>
      <button type="submit" class="mini">Go</button>
    </form>
    <div class="go-to-headings" id="rs-go-to-headings" aria-label="Headings" role="group"></div>
  </div>
</div>
"""
