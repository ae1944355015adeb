// One reply on the screen: finished blocks are appended once and never touched again; only the open end is replaced.
// Blocks are grouped in sections that the browser lays out only while they are near the screen.

import { get, getText } from "./api.js";

const BLOCKS_A_SECTION = 40;
const LINE_PX = 28;
const CHARS_A_LINE = 68;

export class Reply {
  constructor(id) {
    this.id = id;
    this.count = 0;
    this.complete = false;
    this.body = document.createElement("div");
    this.body.className = "reply";
    this.live = document.createElement("div");
    this.live.className = "live";
    this.body.append(this.live);
    this.section = null;
  }

  // Takes blocks [first, first + blocks.length); tells whether they join on to what is here.
  take(first, blocks, open) {
    if (first > this.count) return false;
    const fresh = blocks.slice(this.count - first);
    let pending = "";
    for (const block of fresh) {
      if (this.count % BLOCKS_A_SECTION === 0) {
        this.#put(pending);
        pending = "";
        this.section = document.createElement("section");
        this.live.before(this.section);
      }
      pending += block;
      this.count += 1;
    }
    this.#put(pending);
    if (open !== null && open !== undefined) {
      if (first + blocks.length >= this.count) this.live.innerHTML = open;
      this.complete = true;
    }
    return true;
  }

  #put(html) {
    if (html) this.section.insertAdjacentHTML("beforeend", html);
  }

  // Fetches what is missing, a page at a time, so that a very long reply shows at once and never blocks the screen.
  async load() {
    while (!this.complete) {
      const page = await get(`/messages/${this.id}/blocks?first=${this.count}`);
      if (!this.take(page.first, page.blocks, page.open)) return;
      await new Promise(requestAnimationFrame);
    }
  }

  // Keeps room for a reply that is loaded only when it comes into view.
  reserve(numChars) {
    this.body.style.minHeight = `${Math.ceil(numChars / CHARS_A_LINE) * LINE_PX}px`;
  }

  release() {
    this.body.style.minHeight = "";
  }

  // Returns the element that shows a block, for the page to scroll to.
  async elementOf(block) {
    await this.load();
    const section = this.body.children[Math.floor(block / BLOCKS_A_SECTION)];
    return section?.children[block % BLOCKS_A_SECTION] ?? section ?? this.body;
  }

  text() {
    return getText(`/messages/${this.id}/text`);
  }
}
