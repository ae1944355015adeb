// Elements of the list of chats: a chat, the head of a part, and what stands in a row's place for a while.

import { button, element, textElement } from "./elements.js";
import { day } from "./format.js";
import { icon } from "./icons.js";
import { isComposing } from "./keys.js";

export function chatElement(chat, isCurrent) {
  const name = chat.title || (chat.kind === "notebook" ? "New notebook" : "New chat");
  const row = element("li", `chat-row ${chat.writing ? "writing" : ""} ${isCurrent ? "current" : ""}`);
  row.dataset.id = chat.id;
  row.draggable = true;
  if (!chat.pinned) row.dataset.folder = chat.folder;
  const open = part("chat-open");
  if (isCurrent) open.setAttribute("aria-current", "page");
  const icon = chat.kind === "notebook" ? [drawing("notebook", "chat-kind", "Notebook: ")] : [];
  open.append(...icon, textElement("span", "chat-name", name), element("span", "chat-when", chat.writing ? "writing" : day(chat.updated_at_s)));
  open.title = name;
  row.append(open, menuButton(`Options of ${name}`));
  return row;
}

export function headElement({ head, folder, count, folded }) {
  const row = element("li", "chat-head");
  if (folder !== null) row.dataset.folder = folder;
  const fold = part("chat-fold");
  fold.setAttribute("aria-expanded", String(!folded));
  fold.append(drawing("next", "chevron"), textElement("span", "chat-name", head), element("span", "chat-count", String(count)));
  row.append(fold);
  if (folder) row.append(menuButton(`Options of the folder ${head}`));
  return row;
}

// An input in place of a row; `done(text)` hears what was typed, "" where it was given up.
export function typingElement(label, value, done) {
  const row = element("li", "chat-typing");
  const input = textElement("input", "chat-rename", "");
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
    if (isComposing(event) || !["Enter", "Escape"].includes(event.key)) return;
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
  const row = element("li", "confirm");
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
  row.append(element("span", "", question), ...buttons);
  return row;
}

// Reached with the arrow keys of the list.
function part(className, name = "") {
  const made = button(className, "", name);
  made.tabIndex = -1;
  return made;
}

function menuButton(label) {
  const made = part("icon-button small chat-more", label);
  made.dataset.do = "menu";
  made.setAttribute("aria-haspopup", "menu");
  made.setAttribute("aria-expanded", "false");
  made.append(icon("more"));
  return made;
}

function drawing(name, className, label = "") {
  const made = icon(name, label);
  made.classList.add(className);
  return made;
}
