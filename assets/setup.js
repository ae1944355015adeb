// Before the first message: what the settings will take, and ways to begin. The settings themselves are Gradio's.

import { get, showProblem } from "./api.js";
import { element } from "./elements.js";
import { EstimateCard } from "./estimate.js";
import { nameGroups } from "./form_names.js";
import { bytes } from "./format.js";
import { offerTemplates } from "./templates.js";
import { EffectNotes } from "./without_effect.js";

const SETTLE_MS = 5000;
const OWN_CHANGE_MS = 3000; // the stream tells of this tab's own changes as well

export class Setup {
  // `begin(text)` puts an opening into the composer; `know(outlook)` hears what the settings mean.
  constructor(chatId, begin, know) {
    this.chatId = chatId;
    this.know = know;
    this.body = document.getElementById("rs-outlook-body");
    this.openings = document.getElementById("rs-openings");
    this.card = new EstimateCard(chatId, () => this.show());
    this.asked = 0;
    this.form = document.getElementById("rs-settings");
    this.effects = new EffectNotes(this.form);
    nameGroups(this.form);
    this.edits = 0; // made in the form
    this.sent = 0; // of these, on their way to the server
    this.kept = 0; // of these, with the server
    this.keptAt = -Infinity;
    this.waiting = [];
    this.openings.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) begin(button.dataset.text);
    });
    // not "change": a field tells that when it is left, and Gradio, which knows the value by then, sends nothing more
    this.form.addEventListener("input", (event) => this.body.contains(event.target) || (this.edits += 1), true);
  }

  // Resolves once the server has the settings that are on the screen.
  settled() {
    if (this.kept === this.edits) return Promise.resolve();
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      setTimeout(resolve, SETTLE_MS);
    });
  }

  // Gradio is about to tell the server.
  settingsSent() {
    this.sent = this.edits;
  }

  // Gradio has told the server.
  settingsKept() {
    this.kept = this.sent;
    this.keptAt = performance.now();
    if (this.kept === this.edits) for (const resolve of this.waiting.splice(0)) resolve();
    this.refresh();
  }

  // Has Gradio show a chat's settings; until it has, nothing can be typed that this would overwrite.
  show() {
    this.form.inert = true;
    clearTimeout(this.inertTimer);
    this.inertTimer = setTimeout(() => this.settingsShown(), SETTLE_MS);
    const button = document.querySelector("button#rs-refresh, #rs-refresh button");
    if (button) button.click();
    else setTimeout(() => this.show(), SETTLE_MS / 10); // Gradio has not drawn it yet
    this.refresh();
  }

  settingsShown() {
    this.form.inert = false;
    this.edits = this.sent = this.kept = 0;
  }

  // Another tab may have changed them; what is being typed here is not taken away.
  changedElsewhere() {
    if (performance.now() - this.keptAt < OWN_CHANGE_MS) return;
    if (this.kept === this.edits && !this.form.contains(document.activeElement)) this.show();
  }

  async refresh() {
    const asked = ++this.asked;
    const chat = this.chatId();
    try {
      const seen = await get(chat ? `/outlook?chat=${chat}` : "/outlook");
      if (asked === this.asked) this.#draw(seen);
    } catch (problem) {
      if (asked === this.asked) showProblem(this.body, problem);
    }
  }

  #draw(seen) {
    this.know(seen);
    offerTemplates(seen.templates);
    this.effects.show(seen.without_effect);
    this.body.replaceChildren();
    if (seen.problem) {
      const box = element("div", "problem");
      showProblem(box, { message: seen.problem, hint: seen.hint });
      this.body.append(box);
    }
    const notes = element("ul", "notes");
    const weights = seen.estimate ? [`Its weights take ${bytes(seen.estimate.weights_bytes)}.`] : [];
    notes.append(...[...seen.notes, ...weights].map((note) => element("li", "", note)));
    this.body.append(this.card.root, notes);
    if (seen.estimate) this.#estimate(notes);
    else this.card.hide();
    const buttons = seen.openings.map((opening) => {
      const button = element("button", "opening");
      button.type = "button";
      button.dataset.text = opening.text;
      button.append(element("strong", "", opening.title), element("span", "", opening.text.replace(/\s+/g, " ")));
      return button;
    });
    this.openings.replaceChildren(element("h3", "", seen.continues_text ? "Beginnings" : "Ways to begin"), ...buttons);
  }

  // The card says what the notes do, for every window.
  async #estimate(notes) {
    notes.hidden = this.card.card !== null;
    notes.hidden = await this.card.refresh().catch(() => false);
  }
}
