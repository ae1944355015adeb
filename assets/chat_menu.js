// A menu at a button: arrow keys, first letters, Escape; a list inside takes the menu's place, which fits any screen.

const MARGIN_PX = 8;

// Items: {label, run} for something to do, {label, items} for a list inside, {label, href} for a file to download;
// `checked` and `danger` show as such.
export function openMenu(button, label, items, at = null) {
  closeMenu();
  current = new Menu(button, label, items, at);
}

export function closeMenu() {
  current?.close(false);
}

let current = null;

class Menu {
  constructor(button, label, items, at) {
    this.button = button;
    this.box = document.createElement("div");
    this.box.className = "menu";
    this.box.setAttribute("role", "menu");
    this.at = at;
    this.lists = [];
    document.getElementById("rs-shell").append(this.box);
    button.setAttribute("aria-expanded", "true");
    this.#show({ label, items });
    this.box.addEventListener("keydown", (event) => this.#pressed(event));
    this.box.addEventListener("click", (event) => this.#clicked(event));
    this.elsewhere = (event) => {
      if (!this.box.contains(event.target) && !button.contains(event.target)) this.close(false);
    };
    this.away = () => this.close(false);
    document.addEventListener("pointerdown", this.elsewhere, true);
    window.addEventListener("resize", this.away);
  }

  close(refocus) {
    document.removeEventListener("pointerdown", this.elsewhere, true);
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
    const items = [...this.box.querySelectorAll(".menu-item")];
    (items.find((item) => item.dataset.label === label) ?? items[0]).focus();
  }

  #draw() {
    const { label, items } = this.lists[this.lists.length - 1];
    this.box.setAttribute("aria-label", label);
    const back = this.lists.length > 1 ? [element({ label, back: true })] : [];
    this.box.replaceChildren(...back, ...items.map(element));
    this.items = items;
    this.#place();
  }

  // Below the button or at the pointer, or above, wherever there is room.
  #place() {
    const near = this.at ? new DOMRect(this.at.x, this.at.y, 0, 0) : this.button.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = Math.min(near.left, window.innerWidth - width - MARGIN_PX);
    const below = near.bottom + 4;
    const fits = below + height <= window.innerHeight - MARGIN_PX;
    const top = fits ? below : Math.max(MARGIN_PX, Math.min(near.top, window.innerHeight - MARGIN_PX) - height - 4);
    this.box.style.left = `${Math.max(MARGIN_PX, left)}px`;
    this.box.style.top = `${top}px`;
  }

  #clicked(event) {
    const chosen = event.target.closest(".menu-item");
    if (!chosen) return;
    if (chosen.classList.contains("menu-back")) {
      this.#back();
      return;
    }
    const item = this.items.find((each) => each.label === chosen.dataset.label);
    if (item.items) {
      this.#show(item);
      return;
    }
    this.close(true);
    item.run?.();
  }

  #pressed(event) {
    const items = [...this.box.querySelectorAll(".menu-item")];
    const at = items.indexOf(document.activeElement);
    const go = (index) => items[(index + items.length) % items.length].focus();
    const { key } = event;
    if (key === "ArrowDown") go(at + 1);
    else if (key === "ArrowUp") go(at - 1);
    else if (key === "Home") go(0);
    else if (key === "End") go(-1);
    else if (key === "ArrowRight" && items[at].hasAttribute("aria-haspopup")) items[at].click();
    else if ((key === "ArrowLeft" || key === "Escape") && this.lists.length > 1) this.#back();
    else if (key === "Escape") this.close(true);
    else if (key === "Tab") this.close(true);
    else if (key === " " && items[at]?.href) items[at].click(); // a button does so by itself
    else if (key.length === 1 && key !== " ") {
      const begins = (item) => item.dataset.label.toLowerCase().startsWith(key.toLowerCase());
      [...items.slice(at + 1), ...items.slice(0, at + 1)].find(begins)?.focus();
    } else return;
    event.stopPropagation();
    if (key !== "Tab") event.preventDefault();
  }
}

function element(item) {
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
  made.append(name);
  if (item.items) made.setAttribute("aria-haspopup", "menu");
  if (item.danger) made.classList.add("danger");
  if (item.back) {
    made.classList.add("menu-back");
    made.setAttribute("aria-label", `Back from ${item.label}`);
  }
  return made;
}
