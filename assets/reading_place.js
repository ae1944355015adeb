// Going to a place of the open chat: a character of a message (a search hit), the start, the end, a share of the text.
// Offsets are counted as the server counts them: in code points of the message's text as it is kept.

import { get } from "./api.js";
import { markWords, numOccurrences, unmark } from "./hit_marks.js";

const SETTLE_FRAMES = 12;
const ABOVE_PX = 40; // of the place gone to: enough for the line before it, and clear of the box of `GoTo` on a phone

export class ReadingPlace {
  constructor(conversation) {
    this.conversation = conversation;
  }

  // Scrolls to the block that holds character `offset` of a message, opens the reasoning around it, and marks `words`
  // in it until the next jump; with `query`, the very place of these words that is at `offset`. Tells whether the
  // message is here.
  async goTo(messageId, offset = 0, words = [], query = "") {
    if (!this.conversation.item(messageId)) return false;
    const asked = this.#begin();
    const item = await this.conversation.bring(messageId);
    if (!item) return false;
    let element = item.element.querySelector(".said") ?? item.element;
    let nth = query ? numOccurrences(codePoints(item.message.text, offset), words) : 0;
    if (item.reply) {
      const place = await get(`/messages/${messageId}/place?offset=${offset}&query=${encodeURIComponent(query)}`);
      element = await item.reply.elementOf(place.block);
      nth = place.nth;
    }
    if (asked !== this.asked) return true; // the reader has gone elsewhere meanwhile
    const hit = markWords(element, words, nth);
    await this.#hold(hit ?? element, asked);
    if (!hit && offset > 0) flash(element);
    return true;
  }

  async goToBlock(messageId, block) {
    const asked = this.#begin();
    const item = await this.conversation.bring(messageId);
    const element = await item?.reply?.elementOf(block);
    if (!element || asked !== this.asked) return;
    await this.#hold(element, asked);
    flash(element);
  }

  toStart() {
    this.#begin();
    this.conversation.scroller.scrollTop = 0;
  }

  toEnd() {
    this.#begin();
    this.conversation.stick = true;
    this.conversation.toTheEnd();
  }

  // Goes to a share of the chat's text, 0 to 1.
  async toShare(share) {
    const sizes = [...this.conversation.items.values()].map((item) => [item.message.id, numChars(item)]);
    let left = share * sizes.reduce((sum, [, size]) => sum + size, 0);
    for (const [id, size] of sizes) {
      if (left < size) return this.goTo(id, Math.floor(left));
      left -= size;
    }
    return this.toEnd();
  }

  // Roughly which character is at the top of the screen.
  here() {
    const { top } = this.conversation.scroller.getBoundingClientRect();
    for (const item of this.conversation.drawn) {
      const box = item.element.getBoundingClientRect();
      if (box.bottom <= top) continue;
      const share = Math.min(Math.max((top - box.top) / box.height, 0), 1);
      return { messageId: item.message.id, offset: Math.floor(share * numChars(item)) };
    }
    return null;
  }

  // How much of the chat's text is above the screen, 0 to 1.
  shareHere() {
    const { scrollTop, scrollHeight, clientHeight } = this.conversation.scroller;
    return scrollHeight > clientHeight ? scrollTop / (scrollHeight - clientHeight) : 1;
  }

  #begin() {
    unmark();
    this.conversation.stick = false;
    this.asked = (this.asked ?? 0) + 1;
    return this.asked;
  }

  // Parts above load and take their real height meanwhile: the place is put right until it stays,
  // or the reader goes elsewhere.
  async #hold(place, asked) {
    const { scroller } = this.conversation;
    for (let still = 0, frame = 0; asked === this.asked && still < 3 && frame < SETTLE_FRAMES; frame += 1) {
      const off = place.getBoundingClientRect().top - scroller.getBoundingClientRect().top - ABOVE_PX;
      const before = scroller.scrollTop;
      if (Math.abs(off) > 2) scroller.scrollTop = before + off;
      still = scroller.scrollTop === before ? still + 1 : 0;
      await new Promise(requestAnimationFrame);
    }
  }
}

function numChars({ message, state }) {
  return state?.num_chars ?? message.num_chars;
}

// The first so many code points of a text.
function codePoints(text = "", num) {
  let end = 0;
  for (let left = num; left > 0 && end < text.length; left -= 1) end += text.codePointAt(end) > 0xffff ? 2 : 1;
  return text.slice(0, end);
}

function flash(element) {
  element.classList.remove("gone-to");
  void element.offsetWidth; // begins the animation anew where it is still running
  element.classList.add("gone-to");
  setTimeout(() => element.classList.remove("gone-to"), 2000);
}
