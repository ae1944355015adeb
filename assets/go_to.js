// The small control over the transcript: find, start, end, a share of the text, headings. Ctrl+G opens it.

import { get } from "./api.js";
import { FindInChat } from "./find_in_chat.js";
import { count } from "./format.js";
import { unmark } from "./hit_marks.js";

const MAX_SHOWN = 200;
const MANY = 12;

export class GoTo {
  constructor(conversation, reading) {
    this.conversation = conversation;
    this.reading = reading;
    this.find = new FindInChat(conversation, reading);
    this.root = document.getElementById("rs-go-to");
    this.button = document.getElementById("rs-go-to-open");
    this.box = document.getElementById("rs-go-to-box");
    this.headings = document.getElementById("rs-go-to-headings");
    this.share = document.getElementById("rs-go-to-share");
    this.percent = this.share.querySelector("input");
    this.#listen();
  }

  // Shown where there is something to go to; another chat begins anew.
  show(chatId, isEmpty) {
    this.root.hidden = chatId === null || isEmpty;
    if (chatId === this.chatId) return;
    this.chatId = chatId;
    this.find.clear();
    this.close(false);
  }

  open() {
    if (this.root.hidden) return;
    this.box.hidden = false;
    this.button.setAttribute("aria-expanded", "true");
    this.percent.value = Math.round(100 * this.reading.shareHere());
    this.find.input.focus();
    this.find.begin();
    this.#listHeadings();
  }

  close(refocus = true) {
    if (this.box.hidden) return;
    this.box.hidden = true;
    this.button.setAttribute("aria-expanded", "false");
    unmark();
    if (refocus) this.conversation.scroller.focus({ preventScroll: true });
  }

  #listen() {
    this.button.addEventListener("click", () => (this.box.hidden ? this.open() : this.close()));
    document.getElementById("rs-go-to-start").addEventListener("click", () => this.reading.toStart());
    document.getElementById("rs-go-to-end").addEventListener("click", () => this.reading.toEnd());
    this.share.addEventListener("submit", (event) => {
      event.preventDefault();
      const percent = Math.min(Math.max(Number(this.percent.value) || 0, 0), 100);
      this.percent.value = percent;
      this.reading.toShare(percent / 100).catch((problem) => this.#note(problem.message));
    });
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.preventDefault();
        event.stopPropagation(); // nothing else that Escape closes is meant
        this.close();
      } else if (this.headings.contains(event.target)) {
        this.#walk(event);
      }
    });
    document.addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "g" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
      if (this.root.hidden) return;
      event.preventDefault();
      this.open();
    });
  }

  async #listHeadings() {
    const { chatId } = this;
    if (!this.headings.childElementCount) this.#note("Looking for headings …");
    try {
      const { headings, more } = await get(`/chats/${chatId}/headings`);
      if (chatId === this.chatId && !this.box.hidden) this.#showHeadings(headings, more);
    } catch (problem) {
      this.#note(problem.message);
    }
  }

  #showHeadings(headings, more) {
    if (!headings.length) {
      this.#note("No headings in this chat.");
      return;
    }
    const list = document.createElement("ul");
    const rest = document.createElement("p");
    rest.className = "go-to-note";
    const narrow = (typed) => {
      const wanted = typed.trim().toLowerCase();
      const matching = headings.filter(([, , , text]) => text.toLowerCase().includes(wanted));
      list.replaceChildren(...matching.slice(0, MAX_SHOWN).map((heading) => this.#entry(heading)));
      rest.textContent = restOf(matching.length, more);
    };
    narrow("");
    const parts = headings.length > MANY ? [filterBox(narrow), list, rest] : [list, rest];
    this.headings.replaceChildren(...parts);
  }

  #entry([messageId, block, level, text]) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "go-to-heading";
    button.dir = "auto";
    button.style.setProperty("--rs-level", level);
    button.textContent = text || "(without words)";
    button.addEventListener("click", () =>
      this.reading.goToBlock(messageId, block).catch((problem) => this.#note(problem.message)),
    );
    const item = document.createElement("li");
    item.append(button);
    return item;
  }

  // Arrow keys walk the headings, from the box above them too.
  #walk(event) {
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!way) return;
    event.preventDefault();
    const stops = [...this.headings.querySelectorAll("input, .go-to-heading")];
    stops[stops.indexOf(event.target) + way]?.focus();
  }

  #note(words) {
    const note = document.createElement("p");
    note.className = "go-to-note";
    note.textContent = words;
    this.headings.replaceChildren(note);
  }
}

function restOf(numMatching, more) {
  if (!numMatching) return "No such heading.";
  if (numMatching <= MAX_SHOWN) return "";
  return `${count(numMatching - MAX_SHOWN)}${more ? "+" : ""} more: type to narrow them down.`;
}

function filterBox(narrow) {
  const filter = document.createElement("input");
  filter.type = "search";
  filter.dir = "auto";
  filter.placeholder = "Headings";
  filter.setAttribute("aria-label", "Narrow the headings down");
  filter.autocomplete = "off";
  filter.addEventListener("input", () => narrow(filter.value));
  return filter;
}
