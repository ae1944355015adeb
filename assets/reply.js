// One reply on the screen: finished blocks are appended once and never touched again; only the open end is replaced.
// Blocks are grouped in sections that the browser lays out only while they are near the screen. Of a very long reply
// only those are loaded at all, and given back once the reader is far away.

import { get, getText } from "./api.js";
import { showGrown } from "./growing.js";
import { Section } from "./section.js";
import { PartLoader } from "./section_window.js";
import { textIn } from "./selected_text.js";

const LINE_PX = 28;
const CHARS_A_LINE = 68;
const WHOLE_BLOCKS = 6000; // a reply that grows beyond either of these gives its far sections back too
const WHOLE_HTML_CHARS = 1_500_000;

export class Reply {
  constructor(id, sectionWindow) {
    this.id = id;
    this.window = sectionWindow;
    this.count = 0;
    this.complete = false;
    this.windowed = false;
    this.size = 0; // of what was taken, in characters of HTML
    this.sections = [];
    this.numOutlined = 0; // sections of the server's outline that are here
    this.body = document.createElement("div");
    this.body.className = "reply";
    this.live = document.createElement("div");
    this.live.className = "live";
    this.body.append(this.live);
    const inPage = () => (this.body.isConnected ? this.sections : []);
    this.loader = new PartLoader(inPage, (sections) => this.#fetch(sections));
  }

  // Takes blocks [first, first + blocks.length); tells whether they join on to what is here.
  take(first, blocks, open) {
    if (first > this.count) return false;
    const fresh = blocks.slice(this.count - first);
    const touched = new Set();
    for (const block of fresh) {
      const section = this.#lastWithRoom();
      section.add(block);
      touched.add(section);
      this.count += 1;
      this.size += block.length;
    }
    for (const section of touched) section.flush();
    if (open !== null && open !== undefined) {
      if (first + blocks.length >= this.count) this.#showOpen(open);
      this.complete = true;
    }
    if (this.count > WHOLE_BLOCKS || this.size > WHOLE_HTML_CHARS) this.#beginWindow();
    return true;
  }

  // Takes sections without their blocks; those near the screen load by themselves. Ends with `open` like blocks do.
  takeOutline(outline) {
    const { sections, num_blocks: numBlocks, num_reasoning_blocks: numReasoning } = outline;
    this.#beginWindow();
    const width = this.body.clientWidth;
    sections.forEach(([first, , rows], number) => {
      const end = sections[number + 1]?.[0] ?? numBlocks;
      if (end <= this.count) return; // came with the stream meanwhile
      const section = Section.empty(this.count, end - this.count, (rows * (end - this.count)) / (end - first), width);
      section.element.classList.toggle("reasoning", first > 0 && end <= numReasoning);
      this.#put(section);
      this.count = end;
    });
    this.numOutlined = Math.max(this.numOutlined, outline.section + sections.length);
    this.body.style.setProperty("--rs-to-come", `${this.#roomFor(outline.num_chars - outline.num_chars_rendered)}px`);
    if (outline.tail !== undefined) this.#showOpen(outline.tail);
    this.live.classList.toggle("preview", outline.open === null);
    if (outline.open !== null) {
      if (numBlocks >= this.count) this.#showOpen(outline.open);
      this.complete = true;
    }
  }

  // Fetches what is missing: all of it a page at a time, or of a long reply what there is to load.
  load(long = false) {
    this.coming ??= this.#loadAll(long).finally(() => (this.coming = null));
    return this.coming;
  }

  async #loadAll(long) {
    while (!this.complete) {
      if (long || this.windowed) {
        this.takeOutline(await get(`/messages/${this.id}/outline?section=${this.numOutlined}`));
      } else {
        const page = await get(`/messages/${this.id}/blocks?first=${this.count}`);
        if (!this.take(page.first, page.blocks, page.open)) return;
      }
      await new Promise(requestAnimationFrame);
    }
  }

  // Returns the element that shows a block, for the page to scroll to; loads it if need be.
  async elementOf(block) {
    await this.load();
    const number = this.sections.findIndex((section) => section.end > block);
    if (number < 0) return this.live;
    const section = this.sections[number];
    if (section.element.classList.contains("reasoning")) this.unfold();
    await this.#fetch(this.sections.slice(Math.max(number - 1, 0), number + 2).filter((one) => !one.loaded));
    const before = block - section.first;
    let numElements = 0;
    if (before > 0) {
      const page = await get(`/messages/${this.id}/blocks?first=${section.first}&count=${before}`);
      numElements = elementCount(page.blocks.join(""));
    }
    const element = section.element.children[numElements] ?? section.element;
    if (element.closest(".thinking")) this.unfold();
    return element;
  }

  // Returns [first, last] of the parts of the reply that a range touches, as {block, element}; `element` is null where
  // the block is not loaded and so is meant whole. Null if it touches none.
  async touched(range) {
    const parts = this.sections.filter(({ element }) => range.intersectsNode(element)).flatMap((section) => {
      if (!section.loaded) return [{ block: section.first }, { block: section.end - 1 }];
      return [...section.element.children].map((element) => ({ section, element }));
    });
    parts.push({ block: this.count, element: this.live });
    const meant = parts.filter(({ element }) => !element || textIn(range, element).trim());
    if (!meant.length) return null;
    return Promise.all([meant[0], meant.at(-1)].map((part) => this.#numbered(part)));
  }

  // Returns the text that blocks show, exactly as the server keeps it.
  source(first, count) {
    return getText(`/messages/${this.id}/source?first=${first}&count=${count}`);
  }

  get isUnfolded() {
    return this.body.classList.contains("unfolded");
  }

  // Opens the reasoning, wherever its bar is.
  unfold() {
    if (!this.isUnfolded) this.toggleFold();
  }

  toggleFold() {
    this.body.classList.toggle("unfolded");
    this.#showFold();
  }

  // Keeps room for a reply that is loaded only when it comes into view.
  reserve(numChars) {
    this.body.style.minHeight = `${this.#roomFor(numChars)}px`;
  }

  release() {
    this.body.style.minHeight = "";
  }

  text() {
    return getText(`/messages/${this.id}/text`);
  }

  // Which block an element belongs to: some blocks show nothing, some are two elements.
  async #numbered({ block, section, element = null }) {
    if (!section) return { block, element };
    const page = await get(`/messages/${this.id}/blocks?first=${section.first}&count=${section.count}`);
    let left = [...section.element.children].indexOf(element);
    const number = page.blocks.findIndex((html) => (left -= elementCount(html)) < 0);
    return { block: section.first + number, element };
  }

  #roomFor(numChars) {
    return Math.ceil(numChars / CHARS_A_LINE) * LINE_PX;
  }

  #showOpen(html) {
    showGrown(this.live, html);
  }

  #showFold() {
    const fold = this.body.querySelector(".fold");
    fold?.setAttribute("aria-expanded", this.isUnfolded);
  }

  #lastWithRoom() {
    const last = this.sections.at(-1);
    if (last && !last.isFull) return last;
    const section = new Section(this.count);
    this.#put(section);
    return section;
  }

  #put(section) {
    const before = this.sections.at(-1);
    this.sections.push(section);
    this.live.before(section.element);
    if (!this.windowed) return;
    this.#watch(section);
    if (before) this.#watch(before); // no longer the last one: it may be far already
  }

  #beginWindow() {
    if (this.windowed) return;
    this.windowed = true;
    this.body.classList.add("windowed");
    for (const section of this.sections) this.#watch(section);
  }

  #watch(section) {
    this.window.watch(section.element, {
      cameNear: (near) => {
        section.near = near;
        if (near && !section.loaded) this.loader.begin();
      },
      wentFar: (height) => {
        if (section !== this.sections.at(-1)) section.release(height);
      },
    });
  }

  // Fills sections that follow each other.
  async #fetch(sections) {
    if (!sections.length) return;
    const { first } = sections[0];
    const count = sections.at(-1).end - first;
    const page = await get(`/messages/${this.id}/blocks?first=${first}&count=${count}`);
    for (const section of sections) {
      if (!section.loaded) section.fill(page.blocks.slice(section.first - first, section.end - first));
    }
    if (first === 0) this.#showFold();
  }
}

function elementCount(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.childElementCount;
}
