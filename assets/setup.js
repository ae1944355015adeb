// Before the first message: what the settings will take, and ways to begin. The settings themselves are Gradio's.

import { get, showProblem } from "./api.js";
import { bytes, count } from "./format.js";

export class Setup {
  // `begin(text)` puts an opening into the composer; `know(outlook)` hears what the settings mean.
  constructor(chatId, begin, know) {
    this.chatId = chatId;
    this.know = know;
    this.body = document.getElementById("rs-outlook-body");
    this.openings = document.getElementById("rs-openings");
    this.asked = 0;
    this.changing = false;
    this.waiting = [];
    this.openings.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) begin(button.dataset.text);
    });
    // from the first keystroke until Gradio has told the server, the settings are not what they seem
    const form = document.getElementById("rs-settings");
    for (const kind of ["input", "change"]) form.addEventListener(kind, () => (this.changing = true), true);
  }

  // Resolves once the server has the settings that are on the screen.
  settled() {
    if (!this.changing) return Promise.resolve();
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      setTimeout(resolve, 2000);
    });
  }

  kept() {
    this.changing = false;
    for (const resolve of this.waiting.splice(0)) resolve();
    this.refresh();
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
    this.body.replaceChildren();
    if (seen.problem) {
      const box = element("div", "problem");
      showProblem(box, { message: seen.problem, hint: seen.hint });
      this.body.append(box);
    }
    if (seen.estimate) this.body.append(this.#estimate(seen));
    if (seen.notes.length) {
      const list = element("ul", "notes");
      list.append(...seen.notes.map((note) => element("li", "", note)));
      this.body.append(list);
    }
    const buttons = seen.openings.map((opening) => {
      const button = element("button", "opening");
      button.type = "button";
      button.dataset.text = opening.text;
      button.append(element("strong", "", opening.title), element("span", "", opening.text.replace(/\s+/g, " ")));
      return button;
    });
    this.openings.replaceChildren(element("h3", "", seen.continues_text ? "Beginnings" : "Ways to begin"), ...buttons);
  }

  // Bars on one logarithmic scale: what the cache will hold, and what keeping everything would.
  #estimate(seen) {
    const { estimate } = seen;
    const card = element("div", "estimate");
    const facts = element("p", "estimate-facts");
    facts.append(fact("Weights", bytes(estimate.weights_bytes)));
    facts.append(fact(`Cache, window ${count(seen.window)}`, bytes(estimate.kv_bytes)));
    if (estimate.fits !== null) facts.append(fact("Fits in free memory", estimate.fits ? "yes" : "no"));
    card.append(facts);
    const rows = estimate.kv_full_bytes.map(([tokens, full], at) => [tokens, full, estimate.kv_policy_bytes[at][1]]);
    const sizes = rows.flatMap(([, full, kept]) => [full, kept]).filter((size) => size > 0);
    if (sizes.length) {
      const low = Math.log(Math.min(...sizes)) - 0.7;
      const high = Math.log(Math.max(...sizes));
      const share = (size) => Math.max(0.02, (Math.log(size) - low) / (high - low)).toFixed(3);
      const table = element("div", "estimate-bars");
      table.setAttribute("role", "table");
      table.setAttribute("aria-label", "Cache at length");
      for (const [tokens, full, kept] of rows) {
        const row = element("div", "estimate-row");
        row.setAttribute("role", "row");
        row.append(element("span", "estimate-tokens", `${count(tokens)} tokens`));
        row.append(bar("kept", share(kept), `${bytes(kept)} here`), bar("full", share(full), `${bytes(full)} without a ring`));
        table.append(row);
      }
      card.append(table, element("p", "estimate-note", "Cache bytes, logarithmic scale."));
    }
    return card;
  }
}

function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function fact(label, value) {
  const made = element("span", "fact");
  made.append(element("span", "fact-label", label), element("b", "", value));
  return made;
}

function bar(kind, share, label) {
  const made = element("span", `estimate-bar ${kind}`);
  const fill = element("span", "fill");
  fill.style.setProperty("--share", share);
  made.append(fill, element("span", "estimate-label", label));
  made.setAttribute("role", "cell");
  return made;
}
