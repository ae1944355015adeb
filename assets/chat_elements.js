// Elements of the list of chats: a chat, the head of a part, and what stands in a row's place for a while.

import { day } from "./format.js";

export function chatElement(chat, isCurrent) {
  const name = chat.title || (chat.kind === "notebook" ? "New notebook" : "New chat");
  const row = item(`chat-row ${chat.writing ? "writing" : ""} ${isCurrent ? "current" : ""}`);
  row.dataset.id = chat.id;
  row.draggable = true;
  if (!chat.pinned) row.dataset.folder = chat.folder;
  const open = button("chat-open");
  if (isCurrent) open.setAttribute("aria-current", "page");
  const icon = chat.kind === "notebook" ? [drawing("M5 3h10v14H5zM8 7h4M8 10h4", "chat-kind", "Notebook: ")] : [];
  open.append(...icon, span("chat-name", name), span("chat-when", chat.writing ? "writing" : day(chat.updated_at_s)));
  open.title = name;
  row.append(open, menuButton(`Options of ${name}`));
  return row;
}

export function headElement({ head, folder, count, folded }) {
  const row = item("chat-head");
  if (folder !== null) row.dataset.folder = folder;
  const fold = button("chat-fold");
  fold.setAttribute("aria-expanded", String(!folded));
  fold.append(drawing("M7 5l6 5-6 5", "chevron"), span("chat-name", head), span("chat-count", String(count)));
  row.append(fold);
  if (folder) row.append(menuButton(`Options of the folder ${head}`));
  return row;
}

// An input in place of a row; `done(text)` hears what was typed, "" where it was given up.
export function typingElement(label, value, done) {
  const row = item("chat-typing");
  const input = document.createElement("input");
  input.className = "chat-rename";
  input.value = value;
  input.placeholder = label;
  input.setAttribute("aria-label", label);
  let isDone = false;
  const finish = (text) => {
    if (isDone) return;
    isDone = true;
    done(text);
  };
  input.addEventListener("keydown", (event) => {
    if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
    event.stopPropagation();
    event.preventDefault(); // or the key would press what gets the focus next
    finish(event.key === "Enter" ? input.value.trim() : "");
  });
  input.addEventListener("blur", () => input.isConnected && finish(input.value.trim()));
  row.append(input);
  return row;
}

// A question in place of a row; `done(yes)` hears the answer.
export function questionElement(question, yes, no, done) {
  const row = item("confirm");
  row.setAttribute("role", "alertdialog");
  row.setAttribute("aria-label", question);
  const buttons = [button("mini danger", yes), button("mini", no)];
  buttons[0].addEventListener("click", () => done(true));
  buttons[1].addEventListener("click", () => done(false));
  row.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    done(false);
  });
  row.append(span("", question), ...buttons);
  return row;
}

function item(className) {
  const row = document.createElement("li");
  row.className = className.trim();
  return row;
}

function button(className, text = "") {
  const made = document.createElement("button");
  made.type = "button";
  made.className = className;
  made.textContent = text;
  made.tabIndex = text ? 0 : -1;
  return made;
}

function menuButton(label) {
  const made = button("icon-button small chat-more");
  made.dataset.do = "menu";
  made.setAttribute("aria-label", label);
  made.setAttribute("aria-haspopup", "menu");
  made.setAttribute("aria-expanded", "false");
  made.append(drawing("M4 10h.01M10 10h.01M16 10h.01", "dots"));
  return made;
}

function span(className, text) {
  const made = document.createElement("span");
  made.className = className;
  made.textContent = text;
  return made;
}

function drawing(path, className, name = "") {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", `line-icon ${className}`);
  if (name) {
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", name);
  } else {
    svg.setAttribute("aria-hidden", "true");
  }
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}
