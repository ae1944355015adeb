// Changes of a text to walk back and forth: what stood at a place, and what came there.

const MOST_STEPS = 500;
const MOST_CHARS = 20_000_000;
const TOGETHER_MS = 1000;

export class UndoStack {
  constructor() {
    this.clear();
  }

  clear() {
    this.done = [];
    this.undone = [];
    this.numChars = 0;
  }

  has(way) {
    return (way === "undo" ? this.done : this.undone).length > 0;
  }

  // Letters typed one after the other are one step.
  push(start, removed, inserted) {
    const now = performance.now();
    const last = this.done[this.done.length - 1];
    this.undone = [];
    const goesOn = last && !removed && inserted.length === 1 && last.start + last.inserted.length === start;
    if (goesOn && last.isTyping && now - last.at < TOGETHER_MS && inserted !== "\n") {
      last.inserted += inserted;
      last.at = now;
      this.numChars += inserted.length;
      return;
    }
    this.done.push({ start, removed, inserted, at: now, isTyping: inserted.length === 1 });
    this.numChars += removed.length + inserted.length;
    while (this.done.length > MOST_STEPS || (this.numChars > MOST_CHARS && this.done.length > 1)) {
      const gone = this.done.shift();
      this.numChars -= gone.removed.length + gone.inserted.length;
    }
  }

  // The change that takes the last step back; undefined if there is none.
  undo() {
    const step = this.done.pop();
    if (!step) return undefined;
    step.isTyping = false;
    this.undone.push(step);
    return { start: step.start, removed: step.inserted, inserted: step.removed };
  }

  redo() {
    const step = this.undone.pop();
    if (!step) return undefined;
    this.done.push(step);
    return step;
  }
}
