// The search box of the side: titles as one types, the texts of all chats a moment later, and the way to each hit.

import { get } from "./api.js";
import { folded } from "./folding.js";
import { ListBox } from "./list_box.js";
import { groupElement, hitElement, moreElement, noteElement, titleElement } from "./search_elements.js";

const PAUSE_MS = 250;
const MIN_CHARS = 2;
const MAX_TITLES = 30;

export class Search {
  // `chats()` returns the list of chats; `open(chatId)` shows one, `openAt(chatId, messageId, offset, words)` at a hit.
  constructor(chats, open, openAt) {
    this.chats = chats;
    this.open = open;
    this.openAt = openAt;
    this.input = document.getElementById("rs-search");
    this.found = document.getElementById("rs-found");
    this.said = document.getElementById("rs-found-said");
    this.scroller = document.getElementById("rs-chat-scroller");
    this.box = new ListBox(this.input, this.found, (option) => this.#chosen(option));
    this.asked = 0;
    this.messages = [];
    this.input.addEventListener("input", () => this.#typed());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.input.value) return;
      event.stopPropagation(); // the drawer stays
      this.clear();
    });
  }

  clear() {
    this.input.value = "";
    this.#typed();
  }

  get #query() {
    return this.input.value.trim();
  }

  #typed() {
    clearTimeout(this.timer);
    this.asked += 1;
    const query = this.#query;
    this.found.hidden = !query;
    this.scroller.hidden = Boolean(query);
    this.input.setAttribute("aria-expanded", String(Boolean(query)));
    this.messages = [];
    this.said.textContent = "";
    if (!query) {
      this.scroller.dispatchEvent(new Event("scroll")); // its rows are drawn for where it is now
      return;
    }
    this.#draw(query.length >= MIN_CHARS ? "Searching the texts" : "");
    if (query.length >= MIN_CHARS) this.timer = setTimeout(() => this.#searchTexts(query), PAUSE_MS);
  }

  async #searchTexts(query) {
    const asked = this.asked;
    try {
      const { messages } = await get(`/search?query=${encodeURIComponent(query)}`);
      if (asked !== this.asked) return;
      this.messages = messages;
      this.#draw(messages.length ? "" : `No text has “${query}”.`);
      this.said.textContent = `${this.found.querySelectorAll("[role=option]").length} results`;
    } catch (problem) {
      if (asked === this.asked) this.#draw(`${problem.message} ${problem.hint}`);
    }
  }

  #draw(note) {
    const titled = this.#titled();
    const parts = [];
    if (titled.length) parts.push(groupElement("Titles", titled.slice(0, MAX_TITLES).map(titleElement)));
    if (titled.length > MAX_TITLES) parts.push(noteElement(`${titled.length - MAX_TITLES} more titles; type more of it.`));
    const byChat = new Map();
    for (const message of this.messages) byChat.set(message.chat_id, [...(byChat.get(message.chat_id) ?? []), message]);
    for (const messages of byChat.values()) {
      const options = messages.flatMap((message) => [
        ...message.hits.map((hit, at) => hitElement(message, hit, at)),
        ...(message.more ? [moreElement(message)] : []),
      ]);
      parts.push(groupElement(messages[0].chat_title || "New chat", options));
    }
    if (note) parts.push(noteElement(note));
    this.found.replaceChildren(...parts);
    this.box.refresh();
  }

  #titled() {
    const query = folded(this.#query);
    return this.chats().filter((chat) => folded(chat.title).includes(query));
  }

  #chosen(option) {
    const { chat, message, hit } = option.dataset;
    if (message === undefined) this.open(Number(chat));
    else if (hit === undefined) this.#showAll(Number(message));
    else this.#openHit(Number(message), Number(hit));
  }

  #openHit(messageId, number) {
    const message = this.messages.find((each) => each.message_id === messageId);
    const { start, snippet, marks } = message.hits[number];
    const characters = Array.from(snippet);
    const words = [...new Set(marks.map(([from, to]) => characters.slice(from, to).join("")))];
    this.openAt(message.chat_id, messageId, start, words);
  }

  // All hits of one long reply, in place of the first few.
  async #showAll(messageId) {
    const asked = this.asked;
    try {
      const { messages } = await get(`/search?query=${encodeURIComponent(this.#query)}&message=${messageId}`);
      if (asked !== this.asked || !messages.length) return;
      this.messages = this.messages.map((each) => (each.message_id === messageId ? messages[0] : each));
      this.#draw("");
    } catch (problem) {
      if (asked === this.asked) this.#draw(`${problem.message} ${problem.hint}`);
    }
  }
}
