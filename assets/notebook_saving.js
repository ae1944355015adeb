// Sends what is typed to the server as small replacements, one after the other. Changes that touch go together; what is
// not sent yet stays in the line, whatever happens to the connection.

import { get, patch } from "./api.js";
import { countPoints } from "./notebook_text.js";

const PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 2000;
const RETRY_MS = 2000;
const NEAR_CHARS = 500;
const KEEPALIVE_CHARS = 15_000; // a browser takes 64 kB along from a page that is being closed

export class Saving {
  // `text` is the notebook's; `stale()` is told that someone else changed the document; `say(problem)` shows trouble.
  constructor(text, chatId, version, { stale, say }) {
    this.text = text;
    this.chatId = chatId;
    this.version = version;
    this.stale = stale;
    this.say = say;
    this.line = []; // ready to go: {start, end, text} in code points
    this.open = null; // still growing: {start, end, removed}, of the text as it is now
    this.openedAt = 0;
    this.failing = false;
    this.sending = null;
  }

  get waiting() {
    return this.open !== null || this.line.length > 0;
  }

  // Notes a change before it is made.
  note(start, end, text) {
    const { open } = this;
    if (open && (start > open.end + NEAR_CHARS || end < open.start - NEAR_CHARS)) this.#close();
    if (!this.open) {
      this.open = { start, end: start, removed: "" };
      this.openedAt = performance.now();
    }
    const range = this.open;
    if (start < range.start) {
      range.removed = this.text.slice(start, range.start) + range.removed;
      range.start = start;
    }
    if (end > range.end) {
      range.removed += this.text.slice(range.end, end);
      range.end = end;
    }
    range.end += text.length - (end - start);
    clearTimeout(this.timer);
    const left = Math.max(0, this.openedAt + LONGEST_PAUSE_MS - performance.now());
    this.timer = setTimeout(() => this.flush(), Math.min(PAUSE_MS, left));
  }

  // Sends everything; resolves to whether the server has it all.
  async flush() {
    clearTimeout(this.timer);
    this.#close();
    this.sending ??= this.#send().finally(() => (this.sending = null));
    const isSent = await this.sending;
    return isSent && this.waiting ? this.flush() : isSent;
  }

  async #send() {
    while (this.line.length) {
      try {
        const kept = await patch(`/notebooks/${this.chatId}`, { ...this.line[0], version: this.version });
        this.version = kept.version;
        this.line.shift();
        if (this.failing) this.say(null);
        this.failing = false;
      } catch (problem) {
        await this.#failed(problem);
        return false;
      }
    }
    return true;
  }

  // Tells a document that was changed elsewhere from a server that does not answer.
  async #failed(problem) {
    const there = await get(`/notebooks/${this.chatId}?with_text=false`).catch(() => null);
    if (there && there.version !== this.version) {
      this.stale();
      return;
    }
    this.failing = true;
    this.say(problem);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flush(), RETRY_MS);
  }

  #close() {
    if (!this.open) return;
    const { start, end, removed } = this.open;
    const first = this.text.pointsBefore(start);
    const text = this.text.slice(start, end);
    if (text !== removed) this.line.push({ start: first, end: first + countPoints(removed), text });
    this.open = null;
  }

  // The page goes: what fits is handed to the browser to deliver.
  leaveBehind() {
    this.#close();
    if (this.sending || this.line.length !== 1 || this.line[0].text.length > KEEPALIVE_CHARS) return;
    fetch(`/app/notebooks/${this.chatId}`, {
      method: "PATCH",
      keepalive: true,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...this.line[0], version: this.version }),
    }).catch(() => {});
  }
}
