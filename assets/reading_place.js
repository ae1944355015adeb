// Going to a place of the open chat: a character of a message (a search hit), the start, the end, a share of the text.
// Offsets are counted as the server counts them: in code points of the message's text as it is kept.

import { get } from "./api.js";
import { markWords, unmark } from "./hit_marks.js";

const SETTLE_FRAMES = 12;
const ABOVE_PX = 72; // of the place gone to, so that what leads to it is seen too

export class ReadingPlace {
  constructor(conversation) {
    this.conversation = conversation;
  }

  // Scrolls to the block that holds character `offset` of a message, opens the reasoning around it, and marks `words`
  // in it until the next jump. `nth` tells which of several such words is meant. Tells whether the message is here.
  async goTo(messageId, offset = 0, words = [], nth = 0) {
    const item = this.conversation.item(messageId);
    if (!item) return false;
    this.conversation.stick = false;
    unmark();
    let element = item.element.querySelector(".said");
    if (item.reply) {
      const { block } = await get(`/messages/${messageId}/place?offset=${offset}`);
      element = await item.reply.elementOf(block);
    }
    const hit = markWords(element, words, nth);
    await this.#hold(hit ?? element);
    if (!hit && offset > 0) flash(element);
    return true;
  }

  toStart() {
    unmark();
    this.conversation.stick = false;
    this.conversation.scroller.scrollTop = 0;
  }

  toEnd() {
    unmark();
    this.conversation.stick = true;
    this.conversation.toTheEnd();
  }

  // Goes to a share of the chat's text, 0 to 1.
  async toShare(share) {
    const sizes = [...this.conversation.items.values()].map(({ message, state }) => [
      message.id,
      state?.num_chars ?? message.num_chars,
    ]);
    let left = share * sizes.reduce((sum, [, size]) => sum + size, 0);
    for (const [id, size] of sizes) {
      if (left < size) return this.goTo(id, Math.floor(left));
      left -= size;
    }
    return this.toEnd();
  }

  // Parts above load and take their real height meanwhile: the place is put right until it stays.
  async #hold(place) {
    const { scroller } = this.conversation;
    for (let still = 0, frame = 0; still < 3 && frame < SETTLE_FRAMES; frame += 1) {
      const off = place.getBoundingClientRect().top - scroller.getBoundingClientRect().top - ABOVE_PX;
      const before = scroller.scrollTop;
      if (Math.abs(off) > 2) scroller.scrollTop = before + off;
      still = scroller.scrollTop === before ? still + 1 : 0;
      await new Promise(requestAnimationFrame);
    }
  }
}

function flash(element) {
  element.classList.remove("gone-to");
  void element.offsetWidth; // begins the animation anew where it is still running
  element.classList.add("gone-to");
  setTimeout(() => element.classList.remove("gone-to"), 2000);
}
