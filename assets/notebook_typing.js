// What is typed into a notebook: every change the browser would make is made on the text instead, piece by piece, so
// that it can be sent, undone, and refused while the model writes.

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });
const NEAR_CHARS = 128;

export class Typing {
  // `change(start, end, text)` makes a change; `undo()` and `redo()` walk them; `locked()` tells whether none may be;
  // `moved(offset)` is told where the cursor was sent.
  constructor(text, { change, undo, redo, locked, moved }) {
    this.text = text;
    this.change = change;
    this.undo = undo;
    this.redo = redo;
    this.locked = locked;
    this.moved = moved;
    this.caret = { start: 0, end: 0 };
    const { root } = text;
    root.addEventListener("beforeinput", (event) => this.#before(event));
    root.addEventListener("keydown", (event) => this.#key(event));
    for (const kind of ["copy", "cut"]) root.addEventListener(kind, (event) => this.#copied(event, kind === "cut"));
    root.addEventListener("compositionstart", () => this.#composing());
    root.addEventListener("compositionend", (event) => this.#composed(event));
    document.addEventListener("selectionchange", () => this.#selected());
  }

  // Where the cursor is now: the browser tells of its last steps only later.
  here() {
    this.#selected();
    return this.caret;
  }

  place(start, end = start) {
    this.caret = { start, end };
    const from = this.text.placeOf(start);
    const to = this.text.placeOf(end);
    window.getSelection().setBaseAndExtent(from.node, from.offset, to.node, to.offset);
  }

  // Keeps the caret where it is in the text while [start, end) becomes `length` characters.
  around(start, end, length, splice) {
    const isHere = this.#isHere();
    const caret = this.here();
    splice();
    const moved = (offset) => {
      if (offset <= start) return offset;
      return offset >= end ? offset + length - (end - start) : start;
    };
    this.caret = { start: moved(caret.start), end: moved(caret.end) };
    if (isHere) this.place(this.caret.start, this.caret.end);
  }

  #isHere() {
    const selection = window.getSelection();
    return selection.rangeCount > 0 && this.text.root.contains(selection.anchorNode);
  }

  #selected() {
    if (!this.#isHere() || this.composition) return;
    const { startContainer, startOffset, endContainer, endOffset } = window.getSelection().getRangeAt(0);
    this.caret = this.#range({ startContainer, startOffset, endContainer, endOffset });
  }

  #range({ startContainer, startOffset, endContainer, endOffset }) {
    return { start: this.text.offsetOf(startContainer, startOffset), end: this.text.offsetOf(endContainer, endOffset) };
  }

  #before(event) {
    if (event.inputType === "insertCompositionText" && !this.locked()) return; // cannot be held back: see #composed
    event.preventDefault();
    const kind = event.inputType;
    if (kind === "historyUndo") this.undo();
    else if (kind === "historyRedo") this.redo();
    else if (this.locked()) return;
    else if (kind.startsWith("insert")) this.#insert(event, kind);
    else if (kind.startsWith("delete")) this.#remove(event, kind);
  }

  #insert(event, kind) {
    const isBreak = kind === "insertParagraph" || kind === "insertLineBreak";
    const said = isBreak ? "\n" : (event.dataTransfer?.getData("text/plain") ?? event.data ?? "");
    const [target] = event.getTargetRanges();
    const isElsewhere = kind === "insertReplacementText" || kind === "insertFromDrop";
    const { start, end } = target && isElsewhere ? this.#range(target) : this.here();
    this.change(start, end, said.replace(/\r\n?/g, "\n"));
  }

  #remove(event, kind) {
    const [target] = event.getTargetRanges();
    let { start, end } = this.here();
    if (kind === "deleteByDrag" && target) ({ start, end } = this.#range(target));
    if (start === end && target && !kind.startsWith("deleteContent")) ({ start, end } = this.#range(target));
    if (start === end && kind.endsWith("Forward")) end = this.#next(start);
    else if (start === end) start = this.#previous(end);
    if (end > start) this.change(start, end, "");
  }

  // The character before, as people count characters.
  #previous(offset) {
    const near = this.text.slice(Math.max(0, offset - NEAR_CHARS), offset);
    const last = [...graphemes.segment(near)].pop();
    return offset - (last?.segment.length ?? 0);
  }

  #next(offset) {
    const [first] = graphemes.segment(this.text.slice(offset, offset + NEAR_CHARS));
    return offset + (first?.segment.length ?? 0);
  }

  #key(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key === "home" || key === "end") {
      event.preventDefault();
      this.#goTo(key === "home" ? 0 : this.text.length, event.shiftKey);
      return;
    }
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) this.redo();
    else this.undo();
  }

  // The browser does not find its way into sheets it has not laid out yet.
  #goTo(offset, isExtending) {
    const place = this.text.placeOf(offset);
    if (isExtending) window.getSelection().extend(place.node, place.offset);
    else this.place(offset);
    this.#selected();
    this.moved(offset);
  }

  // The clipboard gets the text's own characters.
  #copied(event, isCut) {
    const { start, end } = this.here();
    if (start === end) return;
    event.preventDefault();
    event.clipboardData.setData("text/plain", this.text.slice(start, end));
    if (isCut && !this.locked()) this.change(start, end, "");
  }

  // An input method writes by itself; what it wrote is taken over at its end, in one piece.
  #composing() {
    if (this.locked()) return;
    const { start, end } = this.here();
    if (end > start) this.change(start, end, "");
    this.composition = { start };
  }

  #composed(event) {
    if (!this.composition) return;
    const { start } = this.composition;
    this.composition = null;
    const { anchorNode } = window.getSelection();
    if (anchorNode) this.text.heal(anchorNode);
    if (event.data) {
      this.text.splice(start, start + event.data.length, ""); // and once more as a change like any other
      this.change(start, start, event.data);
    }
  }
}
