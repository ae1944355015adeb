// Results under an input: arrow keys choose while the typing goes on, Enter takes, a click does both.

import { isComposing, isEnter } from "./keys.js";

export class ListBox {
  // `take(option)` hears which element of role "option" was chosen.
  constructor(input, box, take) {
    this.input = input;
    this.box = box;
    this.take = take;
    this.active = null;
    input.addEventListener("keydown", (event) => this.#pressed(event));
    box.addEventListener("pointerdown", (event) => event.pointerType === "mouse" && event.preventDefault()); // keeps the focus
    box.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (!option) return;
      this.#activate(option);
      take(option);
    });
  }

  // The options changed; the one that was chosen stays so if it is still there.
  refresh() {
    this.#activate(this.active && this.box.querySelector(`#${this.active.id}`));
  }

  #pressed(event) {
    if (this.box.hidden || isComposing(event)) return;
    const options = [...this.box.querySelectorAll("[role=option]")];
    if (!options.length) return;
    const at = options.indexOf(this.active);
    if (event.key === "ArrowDown") this.#activate(options[Math.min(at + 1, options.length - 1)]);
    else if (event.key === "ArrowUp") this.#activate(options[Math.max(at - 1, 0)]);
    else if (isEnter(event)) this.#choose(options[Math.max(at, 0)]);
    else return;
    event.preventDefault();
  }

  #choose(option) {
    this.#activate(option);
    this.take(option);
  }

  #activate(option) {
    this.active?.setAttribute("aria-selected", "false");
    this.active = option ?? null;
    if (!option) {
      this.input.removeAttribute("aria-activedescendant");
      return;
    }
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", option.id);
  }
}
