// A list of rows of one height, of which only those near the screen are in the page: 5,000 chats cost what 50 do.

const AROUND = 8;

export class RowWindow {
  // `draw(row)` makes a row's element; `shape(row)` tells what it shows, so that a row that is the same stays;
  // `drawn()` hears of every change.
  constructor(scroller, list, { draw, shape, drawn }) {
    this.scroller = scroller;
    this.list = list;
    this.draw = draw;
    this.shape = shape;
    this.changed = drawn;
    this.rows = [];
    this.drawn = new Map(); // key -> {element, shape}
    scroller.addEventListener("scroll", () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.#soon()).observe(scroller);
  }

  show(rows) {
    this.rows = rows;
    this.height = parseFloat(getComputedStyle(this.list).getPropertyValue("--rs-row")) || 36;
    this.list.style.height = `${rows.length * this.height}px`;
    this.#update();
  }

  indexOf(key) {
    return this.rows.findIndex((row) => row.key === key);
  }

  // Scrolls a row into view and returns its element.
  reveal(index) {
    const top = index * this.height + this.list.offsetTop;
    const { scroller } = this;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    const below = top + this.height - scroller.clientHeight;
    if (below > scroller.scrollTop) scroller.scrollTop = below;
    this.#update();
    return this.drawn.get(this.rows[index].key).element;
  }

  #soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.#update();
    });
  }

  #update() {
    if (!this.height) return;
    const wanted = new Map(this.#near().map((index) => [this.rows[index].key, index]));
    for (const [key, { element }] of this.drawn) {
      if (wanted.has(key)) continue;
      element.remove();
      this.drawn.delete(key);
    }
    let at = 0;
    for (const [key, index] of wanted) {
      const element = this.#element(key, index);
      if (this.list.children[at] !== element) this.list.insertBefore(element, this.list.children[at] ?? null);
      at += 1;
    }
    this.changed();
  }

  // Rows on and around the screen, and the one with the focus wherever it is.
  #near() {
    const top = this.scroller.scrollTop - this.list.offsetTop;
    const first = Math.max(0, Math.floor(top / this.height) - AROUND);
    const end = Math.min(this.rows.length, Math.ceil((top + this.scroller.clientHeight) / this.height) + AROUND);
    const near = Array.from({ length: Math.max(0, end - first) }, (_, number) => first + number);
    const focused = this.indexOf(document.activeElement?.closest?.("li")?.dataset.key);
    if (focused >= 0 && focused < first) near.unshift(focused);
    if (focused >= end) near.push(focused);
    return near;
  }

  #element(key, index) {
    const row = this.rows[index];
    const shape = this.shape(row);
    const known = this.drawn.get(key);
    const element = known?.shape === shape ? known.element : this.#drawAnew(row, known?.element);
    this.drawn.set(key, { element, shape });
    element.style.transform = `translateY(${index * this.height}px)`;
    element.setAttribute("aria-setsize", this.rows.length);
    element.setAttribute("aria-posinset", index + 1);
    return element;
  }

  #drawAnew(row, former) {
    const element = this.draw(row);
    element.dataset.key = row.key;
    if (!former) return element;
    const focused = [...former.querySelectorAll("button")].indexOf(document.activeElement);
    former.replaceWith(element);
    if (focused >= 0) element.querySelectorAll("button")[focused]?.focus();
    return element;
  }
}
