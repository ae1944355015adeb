"""HTML of a notebook: one document, and a bar with what the model can be told to do. `assets/notebook.js` fills it."""

from __future__ import annotations

NOTEBOOK = """
<section class="notebook" id="rs-notebook" aria-label="Notebook">
  <div class="notebook-scroller scrolls" id="rs-notebook-scroller">
    <div class="notebook-text" id="rs-notebook-text" contenteditable="plaintext-only" role="textbox" tabindex="0"
      dir="auto" aria-multiline="true" aria-label="Document" spellcheck="false"
      data-placeholder="Begin a text. The model goes on from wherever you tell it to."></div>
  </div>
  <div class="notebook-foot">
    <div class="composer-problem" id="rs-notebook-problem" role="alert" hidden></div>
    <div class="notebook-bar" role="toolbar" aria-label="Notebook">
      <button type="button" class="main-button" data-notebook="here" title="Ctrl+Enter">Write here</button>
      <button type="button" class="text-button" data-notebook="end">Write at the end</button>
      <button type="button" class="main-button stop" data-notebook="stop" title="Escape" hidden>Stop</button>
      <span class="notebook-words" id="rs-notebook-words" role="status"></span>
      <button type="button" class="mini" data-notebook="undo" title="Ctrl+Z">Undo</button>
      <button type="button" class="mini" data-notebook="redo" title="Ctrl+Shift+Z">Redo</button>
      <button type="button" class="mini" data-notebook="prompt" title="What the model was given last">Prompt</button>
      <button type="button" class="mini" data-notebook="copy">Copy all</button>
    </div>
    <p class="notebook-note">The model is given this text as it stands: control tokens spelled in it, such as
      &lt;/s&gt; or &lt;|im_end|&gt;, count as such.</p>
  </div>
</section>
"""
