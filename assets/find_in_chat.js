// Finding words in the open chat, in what is not loaded too: the server tells the places, the page goes from one to the
// next. The browser's own search (Ctrl+F) stays what it is and finds what is loaded.

import { get } from "./api.js";
import { count } from "./format.js";
import { isEnter } from "./keys.js";
import { unmark } from "./hit_marks.js";

const TYPING_MS = 250;

export class FindInChat {
  constructor(conversation, reading) {
    this.conversation = conversation;
    this.reading = reading;
    this.input = document.getElementById("rs-find");
    this.said = document.getElementById("rs-find-count");
    this.arrows = { "-1": document.getElementById("rs-find-previous"), 1: document.getElementById("rs-find-next") };
    this.#forget();
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.#find(), TYPING_MS);
    });
    this.input.addEventListener("keydown", (event) => {
      if (!isEnter(event)) return;
      event.preventDefault();
      if (this.query === this.input.value.trim()) this.step(event.shiftKey ? -1 : 1);
      else this.#find();
    });
    for (const [way, button] of Object.entries(this.arrows)) button.addEventListener("click", () => this.step(Number(way)));
  }

  // Shows what was typed before once more; texts may have grown since.
  begin() {
    this.input.select();
    if (this.input.value.trim()) this.#find(false);
  }

  clear() {
    clearTimeout(this.timer);
    this.input.value = "";
    this.#forget();
  }

  // Goes to the next place (1) or the previous one (-1), round the end.
  async step(way) {
    const total = this.places.length;
    if (!total) return;
    this.at = this.at === null ? this.#firstFromHere() : (this.at + way + total) % total;
    const [messageId, start] = this.places[this.at];
    this.said.textContent = `${count(this.at + 1)} of ${count(total)}${this.more ? "+" : ""}`;
    await this.reading.goTo(messageId, start, this.spellings, this.query).catch((problem) => this.#say(problem.message));
  }

  async #find(go = true) {
    clearTimeout(this.timer);
    const query = this.input.value.trim();
    this.#forget();
    unmark();
    if (!query) return;
    this.query = query;
    this.#say("Looking …");
    try {
      const { chatId } = this.conversation;
      const found = await get(`/chats/${chatId}/find?query=${encodeURIComponent(query)}`);
      if (this.query !== query || chatId !== this.conversation.chatId) return;
      this.#take(found);
      if (go) await this.step(1);
    } catch (problem) {
      this.#say(problem.message);
    }
  }

  #take({ places, more, spellings }) {
    this.places = places;
    this.spellings = spellings;
    this.more = more;
    for (const button of Object.values(this.arrows)) button.disabled = places.length === 0;
    this.#say(places.length ? `${count(places.length)}${more ? "+" : ""} places` : "Not in this chat.");
  }

  #forget() {
    this.query = "";
    this.places = [];
    this.spellings = [];
    this.more = false;
    this.at = null;
    for (const button of Object.values(this.arrows)) button.disabled = true;
    this.#say("");
  }

  #say(words) {
    this.said.textContent = words;
  }

  #firstFromHere() {
    const here = this.reading.here();
    if (!here) return 0;
    const order = new Map([...this.conversation.items.keys()].map((id, number) => [id, number]));
    const number = this.places.findIndex(([message, start]) => {
      const later = order.get(message) - order.get(here.messageId);
      return later > 0 || (later === 0 && start >= here.offset);
    });
    return Math.max(number, 0);
  }
}
