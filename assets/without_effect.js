// Says beside a setting that it has no effect under the other ones; `app/without_effect.py` knows which.

const PREFIX = "rs-set-";

export class EffectNotes {
  constructor(form) {
    this.form = form;
    this.notes = {};
    // Cards draw their controls when they are opened first.
    new MutationObserver(() => this.#draw()).observe(form, { childList: true, subtree: true });
  }

  // `notes` holds a sentence by the name of each setting without effect.
  show(notes) {
    this.notes = notes;
    this.#draw();
  }

  #draw() {
    for (const control of this.form.querySelectorAll(`[class*="${PREFIX}"]`)) {
      const mark = [...control.classList].find((name) => name.startsWith(PREFIX));
      if (mark) this.#note(control, mark.slice(PREFIX.length));
    }
  }

  #note(control, name) {
    const text = this.notes[name] ?? "";
    const field = control.querySelector("input, textarea");
    let line = control.querySelector(":scope > .without-effect");
    if (!text) {
      if (line) field?.removeAttribute("aria-describedby");
      line?.remove();
      return;
    }
    if (!line) {
      line = document.createElement("p");
      line.className = "without-effect";
      line.id = `rs-effect-${name}`;
      control.append(line);
      field?.setAttribute("aria-describedby", line.id);
    }
    if (line.textContent !== text) line.textContent = text;
  }
}
