"""The row of presets above the settings; `assets/presets.js` fills it."""

from __future__ import annotations

from app.ui.icons import icon

PRESETS = f"""
<section class="presets" aria-label="Presets">
  <div class="preset-row">
    <label for="rs-preset">Preset</label>
    <select id="rs-preset"></select>
    <button type="button" class="mini" id="rs-preset-apply">Apply</button>
    <button type="button" class="mini" id="rs-preset-save" aria-expanded="false">Save as</button>
    <button type="button" class="icon-button small" id="rs-preset-more" aria-label="More about presets"
      aria-haspopup="menu" aria-expanded="false">{icon("more")}</button>
    <label class="preset-scope" id="rs-preset-scope" hidden><input type="checkbox" id="rs-preset-new"> Only for new
      chats</label>
  </div>
  <form class="preset-row" id="rs-preset-form" hidden>
    <input type="text" id="rs-preset-name" aria-label="Name of the preset" placeholder="Name" maxlength="60" required>
    <button type="submit" class="mini" id="rs-preset-keep">Save</button>
    <button type="button" class="mini" id="rs-preset-cancel">Cancel</button>
  </form>
  <div class="preset-row" id="rs-preset-ask" hidden></div>
  <p class="preset-said" id="rs-preset-said" role="status"></p>
  <input type="file" id="rs-preset-file" accept=".toml,.json" hidden>
</section>
"""
