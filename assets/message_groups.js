// The messages of a chat in groups, one after the other in the page. As the sections of a very long reply, a group far
// from the reader is empty and keeps the room its messages take: a chat of 2,000 messages costs what one of 50 does.

import { element } from "./elements.js";
import { PartLoader } from "./section_window.js";

const GROUP_SIZE = 8;

export class MessageGroups {
  // `list` is their element. `ask(ids)` has the server tell of messages; `draw(item)` makes the element of one that was
  // told of, `drawn()` hears that some are new in the page.
  constructor(list, sectionWindow, { ask, draw, drawn }) {
    this.list = list;
    this.window = sectionWindow;
    this.ask = ask;
    this.draw = draw;
    this.drawn = drawn;
    this.groups = [];
    this.loader = new PartLoader(() => this.groups, (groups) => this.#load(groups));
  }

  clear() {
    this.groups = [];
    this.list.replaceChildren();
  }

  // Takes the items of the chat, in order. Those that were in the page stay there, and the last ones always are.
  show(items) {
    this.numItems = items.length;
    const num = Math.ceil(items.length / GROUP_SIZE);
    const formerLast = this.groups.at(-1);
    while (this.groups.length < num) this.#add();
    this.groups.forEach((group, number) => group.take(items.slice(number * GROUP_SIZE, (number + 1) * GROUP_SIZE), number * GROUP_SIZE));
    for (const group of this.groups.slice(num)) if (!group.isInUse) group.element.remove();
    this.groups = this.groups.filter((group) => group.element.isConnected);
    const widthPx = this.list.clientWidth;
    for (const [number, group] of this.groups.entries()) {
      if (number >= num - 1 || group.isNew || group.loaded) this.#fill(group);
      if (!group.loaded) group.keepRoom(widthPx);
      group.isNew = false;
    }
    this.drawn();
    if (formerLast && formerLast !== this.groups.at(-1)) this.#watch(formerLast); // it may be far already
    this.loader.begin();
  }

  // Has a message in the page, and those around it.
  async bring(item) {
    const at = this.groups.indexOf(item.group);
    const missing = this.groups.slice(Math.max(at - 1, 0), at + 2).filter((group) => !group.loaded);
    if (missing.length) await this.#load(missing);
  }

  // Places of the messages near the reader, as [first, count].
  get near() {
    const near = this.groups.filter((group) => group.near);
    if (!near.length) return [0, 0];
    const first = near[0].first;
    return [first, near.at(-1).first + near.at(-1).items.length - first];
  }

  #add() {
    const group = new MessageGroup();
    this.groups.push(group);
    this.list.append(group.element);
    this.#watch(group);
  }

  #watch(group) {
    this.window.watch(group.element, {
      cameNear: (near) => {
        group.near = near;
        if (near && !group.loaded) this.loader.begin();
      },
      wentFar: (height) => {
        if (height > 0 && group !== this.groups.at(-1)) group.release(height); // no height: the chat is not shown
      },
    });
  }

  async #load(groups) {
    const asked = groups.map((group) => group.items);
    const missing = asked.flat().filter((item) => !item.element);
    if (missing.length) await this.ask(missing.map((item) => item.message.id));
    for (const [number, group] of groups.entries()) {
      this.#fill(group);
      // a message that the server does not have any more is taken away as soon as it tells of the chat
      if (group.items === asked[number]) group.loaded = true;
    }
    this.drawn();
  }

  // Puts the messages of a group into the page, as far as they were told of.
  #fill(group) {
    for (const [number, item] of group.items.entries()) {
      if (!item.element && item.told) this.draw(item);
      if (item.element) item.number(group.first + number + 1, this.numItems);
    }
    group.arrange();
  }
}

class MessageGroup {
  constructor() {
    this.element = element("div", "message-group");
    this.items = [];
    this.first = 0;
    this.near = false;
    this.loaded = false;
    this.isNew = true;
  }

  // Whether something stands in it that is no message any more but is being edited.
  get isInUse() {
    return this.element.childElementCount > 0;
  }

  take(items, first) {
    const isSame = items.length === this.items.length && items.every((item, number) => item === this.items[number]);
    if (!isSame) this.roomPx = null;
    this.items = items;
    this.first = first;
    for (const item of items) item.group = this;
  }

  // Brings the elements in order, between those that are gone but being edited.
  arrange() {
    const here = this.items.filter((item) => item.element);
    const own = new Set(here.map((item) => item.element));
    let at = this.element.firstElementChild;
    for (const { element: wanted } of here) {
      while (at && !own.has(at)) at = at.nextElementSibling;
      if (wanted === at) at = at.nextElementSibling;
      else this.element.insertBefore(wanted, at);
    }
    this.loaded = here.length === this.items.length;
    if (here.length) this.element.style.height = "";
  }

  release(height) {
    if (!this.loaded || this.items.some((item) => item.isHeld)) return;
    for (const item of this.items) item.undraw();
    this.loaded = false;
    this.roomPx = height;
    this.keepRoom();
  }

  keepRoom(widthPx) {
    if (this.isInUse) return;
    this.roomPx ??= this.items.reduce((sum, item) => sum + item.roomPx(widthPx), 0);
    this.element.style.height = `${this.roomPx}px`;
  }
}
