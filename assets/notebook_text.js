// A long text in pieces ("sheets"), each an element with one text node, so that a change lays out a few lines and not a
// megabyte. The text nodes are the text: nothing is kept beside them. Offsets count UTF-16 units, as strings here do.

const SHEET_CHARS = 2000;
const LONGEST_CHARS = 8000; // of a line: a longer one is broken on the screen, not in the text

export class SheetText {
  constructor(root) {
    this.root = root;
    this.sheets = []; // {element, node, points}: `points` are its code points, null where not counted
    this.set("");
  }

  get length() {
    return this.sheets.reduce((sum, sheet) => sum + sheet.node.length, 0);
  }

  set(text) {
    this.sheets = pieces(text).map(newSheet);
    this.root.replaceChildren(...this.sheets.map((sheet) => sheet.element));
    this.#endLine();
  }

  slice(start, end) {
    let at = 0;
    let text = "";
    for (const { node } of this.sheets) {
      if (at >= end) break;
      if (at + node.length > start) text += node.data.slice(Math.max(0, start - at), end - at);
      at += node.length;
    }
    return text;
  }

  // Code points before an offset: what the server counts in.
  pointsBefore(offset) {
    let points = 0;
    let at = 0;
    for (const sheet of this.sheets) {
      if (at + sheet.node.length > offset) return points + countPoints(sheet.node.data.slice(0, offset - at));
      sheet.points ??= countPoints(sheet.node.data);
      points += sheet.points;
      at += sheet.node.length;
    }
    return points;
  }

  // Replaces [start, end) by text. What stands before and behind keeps its elements.
  splice(start, end, text) {
    const first = this.#find(start);
    const last = end > start ? this.#find(end - 1) : first;
    const sheet = this.sheets[first.index];
    const tail = this.sheets[last.index].node.data.slice(end - last.base);
    const isWhole = first.index === last.index && sheet.node.length + text.length <= 2 * SHEET_CHARS;
    const isLast = last.index === this.sheets.length - 1;
    if (isWhole && (isLast || (tail || text || sheet.node.data.slice(0, start - first.base)).endsWith("\n"))) {
      sheet.node.replaceData(start - first.base, end - start, text);
      sheet.points = null;
    } else {
      this.#replace(first.index, last.index, sheet.node.data.slice(0, start - first.base) + text + tail);
    }
    this.#endLine();
  }

  // Where an offset is in the page: at a boundary, the start of the sheet behind it.
  placeOf(offset) {
    const { index, base } = this.#find(offset);
    const { node } = this.sheets[index];
    return { node, offset: Math.min(offset - base, node.length) };
  }

  // The offset of a place in the page.
  offsetOf(container, place) {
    let base = 0;
    if (container === this.root) {
      for (const sheet of this.sheets.slice(0, place)) base += sheet.node.length;
      return base;
    }
    for (const { element, node } of this.sheets) {
      if (container === node) return base + Math.min(place, node.length);
      if (element.contains(container)) return base + (container === element && place === 0 ? 0 : node.length);
      base += node.length;
    }
    return base;
  }

  // Reads a sheet again that the browser itself has written in (an input method does).
  heal(container) {
    const sheet = this.sheets.find(({ element }) => element.contains(container));
    if (!sheet) return;
    const text = sheet.element.textContent;
    if (!sheet.node.isConnected || sheet.node.data !== text) {
      sheet.node = document.createTextNode(text);
      sheet.element.replaceChildren(sheet.node);
    }
    sheet.points = null;
    this.#endLine();
  }

  #find(offset) {
    let base = 0;
    for (let index = 0; index < this.sheets.length - 1; index += 1) {
      const { length } = this.sheets[index].node;
      if (offset < base + length) return { index, base };
      base += length;
    }
    return { index: this.sheets.length - 1, base };
  }

  #replace(first, last, merged) {
    let text = merged;
    let end = last;
    while (!text.endsWith("\n") && end < this.sheets.length - 1 && text.length < LONGEST_CHARS) {
      end += 1;
      text += this.sheets[end].node.data;
    }
    const fresh = text ? pieces(text).map(newSheet) : [];
    this.sheets[first].element.before(...fresh.map((sheet) => sheet.element));
    for (const gone of this.sheets.splice(first, end - first + 1, ...fresh)) gone.element.remove();
    if (!this.sheets.length) this.set("");
  }

  // A line that the text ends with, empty so far, is there to write in.
  #endLine() {
    const last = this.sheets[this.sheets.length - 1];
    const isNeeded = !last.node.length || last.node.data.endsWith("\n");
    for (const mark of this.root.querySelectorAll("br")) {
      if (!isNeeded || mark.parentNode !== last.element) mark.remove();
    }
    if (isNeeded && !last.element.querySelector("br")) last.element.append(document.createElement("br"));
  }
}

function newSheet(text) {
  const element = document.createElement("div");
  element.className = "sheet";
  const node = document.createTextNode(text);
  element.append(node);
  return { element, node, points: null };
}

function pieces(text) {
  const found = [];
  let start = 0;
  while (text.length - start > SHEET_CHARS) {
    const end = cut(text, start);
    if (end >= text.length) break;
    found.push(text.slice(start, end));
    start = end;
  }
  found.push(text.slice(start));
  return found.length > 1 && !found[found.length - 1] ? found.slice(0, -1) : found;
}

// Behind the last line that fits; else behind the first line there is; else behind a word.
function cut(text, start) {
  const within = text.lastIndexOf("\n", start + SHEET_CHARS - 1);
  if (within >= start) return within + 1;
  const beyond = text.indexOf("\n", start);
  if (beyond >= 0 && beyond < start + LONGEST_CHARS) return beyond + 1;
  if (text.length - start <= LONGEST_CHARS) return text.length;
  const space = text.lastIndexOf(" ", start + LONGEST_CHARS - 1);
  if (space > start) return space + 1;
  const code = text.charCodeAt(start + LONGEST_CHARS - 1);
  return start + LONGEST_CHARS + (code >= 0xd800 && code < 0xdc00 ? 1 : 0);
}

export function countPoints(text) {
  let count = text.length;
  for (let at = 0; at < text.length - 1; at += 1) {
    const code = text.charCodeAt(at);
    if (code < 0xd800 || code > 0xdbff) continue;
    const next = text.charCodeAt(at + 1);
    if (next >= 0xdc00 && next <= 0xdfff) count -= 1;
  }
  return count;
}
