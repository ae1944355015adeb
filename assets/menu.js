// A menu at a button: arrow keys, Home, End and first letters walk it, Escape and Tab leave it.

const GAP_PX = 4;
let closeOpen = () => {};

// `entries` are {label, run, disabled, danger}, and null for a line between groups. `note` is said below them.
export function openMenu(button, entries, note = "") {
  closeOpen();
  const menu = document.createElement("div");
  menu.className = "menu";
  menu.setAttribute("role", "menu");
  menu.setAttribute("aria-label", button.getAttribute("aria-label"));
  const items = [];
  for (const entry of entries) {
    const element = entry ? menuItem(entry) : separator();
    menu.append(element);
    if (entry) items.push(element);
  }
  if (note) menu.append(noteLine(note));

  const close = (refocus) => {
    closeOpen = () => {};
    menu.remove();
    button.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", beside, true);
    window.removeEventListener("resize", close);
    document.removeEventListener("wheel", beside, true);
    if (refocus === true) button.focus();
  };
  const beside = (event) => menu.contains(event.target) || button.contains(event.target) || close();
  const choose = (element) => {
    const entry = entries.filter(Boolean)[items.indexOf(element)];
    if (!entry || entry.disabled) return;
    close(true);
    entry.run();
  };
  menu.addEventListener("click", (event) => choose(event.target.closest("[role=menuitem]")));
  menu.addEventListener("keydown", (event) => pressed(event, items, close, choose));
  document.addEventListener("pointerdown", beside, true);
  document.addEventListener("wheel", beside, true);
  window.addEventListener("resize", close);
  document.getElementById("rs-shell").append(menu);
  place(menu, button);
  button.setAttribute("aria-expanded", "true");
  closeOpen = close;
  items[0]?.focus();
}

function menuItem({ label, disabled, danger }) {
  const item = document.createElement("button");
  item.type = "button";
  item.setAttribute("role", "menuitem");
  item.tabIndex = -1;
  item.textContent = label;
  if (disabled) item.setAttribute("aria-disabled", "true");
  if (danger) item.classList.add("danger");
  return item;
}

function separator() {
  const line = document.createElement("div");
  line.setAttribute("role", "separator");
  return line;
}

function noteLine(text) {
  const note = document.createElement("p");
  note.className = "menu-note";
  note.textContent = text;
  return note;
}

function pressed(event, items, close, choose) {
  const place = items.indexOf(document.activeElement);
  const to = {
    ArrowDown: (place + 1) % items.length,
    ArrowUp: (place - 1 + items.length) % items.length,
    Home: 0,
    End: items.length - 1,
  }[event.key];
  if (to !== undefined) {
    event.preventDefault();
    items[to].focus();
  } else if (event.key === "Escape") {
    event.preventDefault();
    event.stopPropagation(); // nothing else that Escape closes is meant
    close(true);
  } else if (event.key === "Tab") {
    close(true);
  } else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    choose(document.activeElement);
  } else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey) {
    const letter = event.key.toLowerCase();
    const order = [...items.slice(place + 1), ...items.slice(0, place + 1)];
    order.find((item) => item.textContent.toLowerCase().startsWith(letter))?.focus();
  }
}

// Below the button where there is room, else above; never outside the window.
function place(menu, button) {
  const at = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const below = at.bottom + GAP_PX + height <= window.innerHeight;
  const top = below ? at.bottom + GAP_PX : Math.max(GAP_PX, at.top - GAP_PX - height);
  menu.style.top = `${top}px`;
  menu.style.left = `${Math.max(GAP_PX, Math.min(at.left, window.innerWidth - width - GAP_PX))}px`;
}
