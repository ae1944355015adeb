// Some blocks of a reply in one element. A part of a very long reply can be empty, keeping the room its blocks take.

const BLOCKS = 40;
const HTML_CHARS = 30_000;
const LINE_PX = 28.6;
const LINE_CHARS = 68;
const CHAR_PX = 8.6;
const USUAL_WIDTH_PX = 600;
const BETWEEN_BLOCKS_PX = 14;
const TAGS = /<[^>]*>/g;

// Characters in a line of a reply, roughly, where the page leaves it so much width, if that is known.
export function charsInLine(widthPx) {
  return Math.min(LINE_CHARS, (widthPx || USUAL_WIDTH_PX) / CHAR_PX);
}

export class Section {
  constructor(first) {
    this.element = document.createElement("section");
    this.first = first;
    this.count = 0;
    this.loaded = true;
    this.near = false;
    this.size = 0;
    this.numChars = 0;
    this.pending = "";
  }

  // A section whose blocks are on the server; `rows` tells its lines at usual width, `width` is the reply's own.
  static empty(first, count, rows, width) {
    const section = new Section(first);
    section.count = count;
    section.loaded = false;
    section.#keepRoom(Math.round((rows * LINE_PX * LINE_CHARS) / charsInLine(width) + count * BETWEEN_BLOCKS_PX));
    return section;
  }

  get end() {
    return this.first + this.count;
  }

  get isFull() {
    return !this.loaded || this.count >= BLOCKS || this.size > HTML_CHARS;
  }

  // Takes one more block; it is on the page after `flush`.
  add(block) {
    this.pending += block;
    this.size += block.length;
    this.numChars += block.replace(TAGS, "").length;
    this.count += 1;
  }

  flush() {
    if (!this.pending) return;
    this.element.insertAdjacentHTML("beforeend", this.pending);
    this.pending = "";
    // the room it takes before the browser has laid it out
    const px = Math.ceil(this.numChars / charsInLine()) * LINE_PX + this.count * BETWEEN_BLOCKS_PX;
    this.element.style.containIntrinsicSize = `auto ${Math.round(px)}px`;
  }

  fill(blocks) {
    this.loaded = true;
    this.element.innerHTML = blocks.join("");
    this.element.style.height = "";
  }

  // Empties it, keeping its room.
  release(height) {
    if (!this.loaded) return;
    this.loaded = false;
    this.element.replaceChildren();
    this.#keepRoom(height);
  }

  #keepRoom(height) {
    this.element.style.height = `${height}px`;
  }
}
