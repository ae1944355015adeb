// The box in which the text of a message is changed where it stands, or a question is asked again with other words.
// Whatever goes wrong, what was typed stays in it, and is in it again when it is opened after a reload.

import { patch, showProblem } from "./api.js";
import { isEnter } from "./keys.js";
import { remember, remembered } from "./remembered.js";

const KEY = "ringside.edit.";

const MAX_ROWS = 18;

// Opens the box in place of a message's text.
//   text    what the message says, exactly
//   asks    whether Enter asks again, the point of the box; else Ctrl+Enter saves
//   ask     asks again with a text, for a user's message; `accepted()` is called before the answer is shown
//   closed  called once the box is gone; `changed` tells whether the message may be another one now
export function openEditBox(item, { text, asks, ask, closed }) {
  if (item.editing) {
    item.editing.querySelector("textarea").focus();
    return;
  }
  const form = makeForm(Boolean(ask), asks);
  const [area, problem, note] = ["textarea", ".problem", ".edit-note"].map((name) => form.querySelector(name));
  const { version } = item.message; // of the text that is being changed
  area.value = text;
  const shown = area.value; // a text field has its own line breaks
  const key = `${KEY}${item.message.id}`;
  const typedBefore = remembered(key);
  if (typedBefore !== null) {
    area.value = typedBefore;
    note.textContent = "What you typed before is here again";
  }
  area.rows = Math.min(MAX_ROWS, area.value.split("\n", MAX_ROWS).length + 1);
  const covered = [...item.element.children].filter((child) => child !== item.footer && !child.hidden);
  area.addEventListener("input", () => remember(key, area.value === shown ? null : area.value));
  const close = (changed) => {
    remember(key, null);
    form.remove();
    for (const child of covered) child.hidden = false;
    item.editing = null;
    closed(changed);
  };
  const letGo = () => {
    remember(key, null);
    item.editing = null; // the question in its new words takes the place of this one
  };
  const submit = async (sends) => {
    const typed = withOwnBreaks(text, shown, area.value);
    try {
      if (sends) await ask(typed, letGo);
      else if (typed !== text) await patch(`/messages/${item.message.id}`, { text: typed, version });
      close(true);
    } catch (error) {
      showProblem(problem, { message: error.message, hint: "What you typed is still here. Cancel shows the message as it is now." });
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit((event.submitter?.value ?? form.dataset.main) === "ask");
  });
  form.querySelector("[data-do=cancel]").addEventListener("click", () => close(!problem.hidden));
  area.addEventListener("keydown", (event) => {
    if (isEnter(event) && !event.shiftKey && (asks || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      submit(form.dataset.main === "ask");
    } else if (event.key === "Escape") {
      event.stopPropagation();
      if (area.value === shown || note.dataset.warned) close(!problem.hidden);
      else note.dataset.warned = note.textContent = "Escape once more drops what you typed.";
    }
  });
  for (const child of covered) child.hidden = true;
  item.element.prepend(form);
  item.editing = form;
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}

function makeForm(canAsk, asks) {
  const form = document.createElement("form");
  form.className = "edit";
  form.dataset.main = asks ? "ask" : "save";
  form.innerHTML =
    '<textarea dir="auto"></textarea><div class="problem" role="alert" hidden></div>' +
    '<div class="edit-buttons"><span class="edit-note" role="status"></span></div>';
  form.querySelector("textarea").setAttribute("aria-label", asks ? "Ask again" : "Edit the message");
  form.querySelector(".edit-note").textContent = asks ? "Enter sends" : "Ctrl+Enter saves";
  const submits = { ask: "Send again", save: "Save" };
  const order = asks ? ["ask", "save"] : canAsk ? ["save", "ask"] : ["save"];
  for (const [place, value] of order.entries()) {
    const button = document.createElement("button");
    button.type = "submit";
    button.value = value;
    button.className = place === 0 ? "main-button" : "text-button";
    button.textContent = submits[value];
    form.lastChild.append(button);
  }
  const cancel = document.createElement("button");
  cancel.type = "button";
  cancel.dataset.do = "cancel";
  cancel.className = "text-button";
  cancel.textContent = "Cancel";
  form.lastChild.append(cancel);
  return form;
}

// A text field turns every line break into "\n". Where nothing was typed, the text keeps the breaks it had.
function withOwnBreaks(text, shown, typed) {
  if (typed === shown) return text;
  if (text === shown) return typed;
  const longest = Math.min(shown.length, typed.length);
  let start = 0;
  while (start < longest && shown[start] === typed[start]) start += 1;
  let end = 0;
  while (end < longest - start && shown.at(-1 - end) === typed.at(-1 - end)) end += 1;
  return text.slice(0, placeIn(text, start)) + typed.slice(start, typed.length - end) + text.slice(placeIn(text, shown.length - end));
}

// Returns the place in a text of a place in a text field that shows it, where "\r\n" counts as one.
export function placeIn(text, place) {
  if (!text.includes("\r")) return place;
  let at = 0;
  for (let left = place; left > 0; left -= 1) at += text[at] === "\r" && text[at + 1] === "\n" ? 2 : 1;
  return at;
}
