// A menu at a button: arrow keys, Home, End and first letters walk it, Escape and Tab leave it. A list inside takes the
// menu's place, which fits any screen.

import { icon } from "./icons.js";

const MARGIN_PX = 8;
const GAP_PX = 4;
let current = null;

// Items: {label, run} for something to do, {label, items} for a list inside, {label, href} for a file to download, null
// for a line between groups; `checked`, `danger` and `disabled` show as such. `at` is where a pointer asked for the
// menu; `note` is said below the items.
export function openMenu(button, label, items, { at = null, note = "" } = {}) {
  current?.close(false);
  current = new Menu(button, { label, items: items.filter((item) => item !== false) }, at, note);
}

class Menu {
  constructor(button, list, at, note) {
    this.button = button;
    this.at = at;
    this.note = note;
    this.lists = [];
    this.box = document.createElement("div");
    this.box.className = "menu scrolls";
    this.box.setAttribute("role", "menu");
    document.getElementById("rs-shell").append(this.box);
    button.setAttribute("aria-expanded", "true");
    this.#show(list);
    this.box.addEventListener("keydown", (event) => this.#pressed(event));
    this.box.addEventListener("click", (event) => this.#choose(event.target.closest(".menu-item")));
    this.beside = (event) => {
      if (!this.box.contains(event.target) && !button.contains(event.target)) this.close(false);
    };
    this.away = () => this.close(false);
    document.addEventListener("pointerdown", this.beside, true);
    document.addEventListener("wheel", this.beside, true);
    window.addEventListener("resize", this.away);
  }

  close(refocus) {
    document.removeEventListener("pointerdown", this.beside, true);
    document.removeEventListener("wheel", this.beside, true);
    window.removeEventListener("resize", this.away);
    this.button.setAttribute("aria-expanded", "false");
    this.box.remove();
    current = null;
    if (refocus && this.button.isConnected) this.button.focus();
  }

  #show(list) {
    this.lists.push(list);
    this.#draw();
    this.box.querySelector(".menu-item:not(.menu-back)").focus();
  }

  #back() {
    const { label } = this.lists.pop();
    this.#draw();
    const elements = this.#elements();
    (elements.find((element) => element.dataset.label === label) ?? elements[0]).focus();
  }

  #draw() {
    const { label, items } = this.lists[this.lists.length - 1];
    this.box.setAttribute("aria-label", label);
    const back = this.lists.length > 1 ? [itemElement({ label, isBack: true })] : [];
    const note = this.note ? [noteElement(this.note)] : [];
    this.box.replaceChildren(...back, ...items.map((item) => (item ? itemElement(item) : separator())), ...note);
    this.items = items.filter(Boolean);
    this.#place();
  }

  #elements() {
    return [...this.box.querySelectorAll(".menu-item")];
  }

  // Below the button or at the pointer, or above, wherever there is room; never outside the window.
  #place() {
    const near = this.at ? new DOMRect(this.at.x, this.at.y, 0, 0) : this.button.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = Math.min(near.left, window.innerWidth - width - MARGIN_PX);
    const below = near.bottom + GAP_PX;
    const fits = below + height <= window.innerHeight - MARGIN_PX;
    const top = fits ? below : Math.max(MARGIN_PX, Math.min(near.top, window.innerHeight - MARGIN_PX) - height - GAP_PX);
    this.box.style.left = `${Math.max(MARGIN_PX, left)}px`;
    this.box.style.top = `${top}px`;
  }

  #choose(element) {
    if (!element) return;
    if (element.classList.contains("menu-back")) {
      this.#back();
      return;
    }
    const item = this.items.find((each) => each.label === element.dataset.label);
    if (item.disabled) return;
    if (item.items) {
      this.#show(item);
      return;
    }
    this.close(true);
    item.run?.();
  }

  #pressed(event) {
    const elements = this.#elements();
    const at = elements.indexOf(document.activeElement);
    const go = (index) => elements[(index + elements.length) % elements.length].focus();
    const { key } = event;
    if (key === "ArrowDown") go(at + 1);
    else if (key === "ArrowUp") go(Math.max(at, 0) - 1);
    else if (key === "Home") go(0);
    else if (key === "End") go(-1);
    else if (key === "ArrowRight" && elements[at]?.hasAttribute("aria-haspopup")) this.#choose(elements[at]);
    else if ((key === "ArrowLeft" || key === "Escape") && this.lists.length > 1) this.#back();
    else if (key === "Escape" || key === "Tab") this.close(true);
    else if (key === "Enter" || key === " ") elements[at]?.click();
    else if (key.length === 1 && !event.ctrlKey && !event.metaKey) {
      const begins = (element) => element.dataset.label.toLowerCase().startsWith(key.toLowerCase());
      [...elements.slice(at + 1), ...elements.slice(0, at + 1)].find(begins)?.focus();
    } else return;
    event.stopPropagation(); // nothing else that Escape closes is meant
    if (key !== "Tab") event.preventDefault();
  }
}

function itemElement(item) {
  const made = document.createElement(item.href ? "a" : "button");
  made.className = "menu-item";
  made.dataset.label = item.label;
  made.tabIndex = -1;
  made.setAttribute("role", item.checked === undefined ? "menuitem" : "menuitemradio");
  if (item.checked !== undefined) made.setAttribute("aria-checked", String(item.checked));
  if (item.href) {
    made.href = item.href;
    made.download = "";
  } else {
    made.type = "button";
  }
  const name = document.createElement("span");
  name.textContent = item.label;
  if (item.isBack) made.append(icon("previous"));
  if (item.checked !== undefined) made.append(icon("check"));
  made.append(name);
  if (item.items) made.append(icon("next"));
  if (item.items) made.setAttribute("aria-haspopup", "menu");
  if (item.disabled) made.setAttribute("aria-disabled", "true");
  if (item.danger) made.classList.add("danger");
  if (item.isBack) {
    made.classList.add("menu-back");
    made.setAttribute("aria-label", `Back from ${item.label}`);
  }
  return made;
}

function separator() {
  const line = document.createElement("div");
  line.setAttribute("role", "separator");
  return line;
}

function noteElement(text) {
  const note = document.createElement("p");
  note.className = "menu-note";
  note.textContent = text;
  return note;
}
