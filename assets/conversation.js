// The middle of the page: messages, the reply being written, and following its end until the reader scrolls away.

import { get, getText } from "./api.js";
import { copyText } from "./copying.js";
import { plural } from "./format.js";
import { MessageGroups } from "./message_groups.js";
import { MessageItem } from "./message_item.js";
import { ENDINGS } from "./reply_words.js";
import { SectionWindow } from "./section_window.js";

export class Conversation {
  // `actions`: continueReply, regenerate, askAgain(item), all returning promises.
  constructor(actions) {
    this.actions = actions;
    this.scroller = document.getElementById("rs-scroller");
    this.list = document.getElementById("rs-messages");
    this.end = document.getElementById("rs-end");
    this.toEnd = document.getElementById("rs-to-end");
    this.said = document.getElementById("rs-said");
    this.items = new Map(); // message id -> MessageItem, of every message of the chat, in order
    this.chatId = null;
    this.stick = true;
    this.dressings = [];
    this.window = new SectionWindow(this.scroller);
    this.groups = new MessageGroups(this.list, this.window, {
      ask: (ids) => this.#ask(ids),
      draw: (item) => this.#draw(item),
      drawn: () => this.#footers(),
    });
    this.#followTheEnd();
    this.#loadWhenNear();
    this.list.addEventListener("click", (event) => this.#clicked(event));
  }

  get lastReplyId() {
    return [...this.items.values()].findLast((item) => item.isReply)?.message.id ?? null;
  }

  item(messageId) {
    return this.items.get(messageId);
  }

  isLast(item) {
    return [...this.items.values()].at(-1) === item;
  }

  get isEmpty() {
    return this.items.size === 0;
  }

  // The messages that are in the page, in order.
  get drawn() {
    return [...this.items.values()].filter((item) => item.element);
  }

  // Has `dress(item)` called for every message that comes into the page.
  whenDrawn(dress) {
    this.dressings.push(dress);
  }

  // Has a message in the page, wherever the reader is, and returns its item; undefined if the chat has none of that id.
  async bring(messageId) {
    const item = this.items.get(messageId);
    if (item && !item.element) await this.groups.bring(item);
    return item?.element ? item : undefined;
  }

  // What to ask of the server besides the end of a chat: the messages near the reader, if it is the one on screen.
  nearQuery(chatId) {
    const [first, count] = chatId === this.chatId ? this.groups.near : [0, 0];
    return count ? `?first=${first}&count=${count}` : "";
  }

  // Scrolls to a message and puts the focus on it, now or as soon as the server has told of it.
  goToWhenShown(messageId) {
    this.awaited = messageId;
    this.#goToAwaited();
  }

  clear() {
    this.chatId = null;
    this.awaited = null;
    this.items.clear();
    this.groups.clear();
    this.stick = true;
  }

  // Brings the screen to what the server says: keeps what is there, adds what is new, takes away what is gone.
  show(chatId, messages) {
    if (chatId !== this.chatId) this.clear();
    this.chatId = chatId;
    const told = new Map(messages.map((message) => [message.id, message]));
    const focused = this.#dropChanged(told);
    for (const message of messages) {
      if (!this.items.has(message.id)) this.items.set(message.id, new MessageItem(message));
      const item = this.items.get(message.id);
      item.tell(message);
      if (item.element && item.edition === message.edition) this.#takeText(item);
    }
    const gone = [...this.items].filter(([id]) => !told.has(id));
    this.items = new Map([...gone, ...messages.map((message) => [message.id, this.items.get(message.id)])]);
    this.groups.show(messages.map((message) => this.items.get(message.id)));
    for (const item of this.items.values()) item.told = null;
    this.items.get(focused)?.more?.focus({ preventScroll: true });
    this.toTheEnd();
    this.#goToAwaited();
  }

  // Takes one event of the stream. Returns "unknown" for a message that is not here, "gap" where blocks are missing.
  follow(event) {
    const item = this.items.get(event.message);
    if (!item?.reply) return "unknown";
    const was = item.message.status;
    item.state = event.state;
    item.message.status = event.state.status === "finished" ? this.#finalStatus(event.state) : "running";
    if (event.text && !item.reply.take(event.text.first, event.text.blocks, event.text.open)) return "gap";
    item.showProgress();
    if (event.state.status === "finished" && was !== item.message.status) {
      item.message.finish_reason = event.state.reason;
      item.message.num_tokens = event.state.num_tokens;
      item.message.error = [event.state.error, event.state.hint].filter(Boolean).join(" ");
      item.message.summary = event.state.summary;
      this.said.textContent = `Reply ${ENDINGS[event.state.reason] ?? "ended"}, ${plural(event.state.num_tokens, "token")}.`;
      this.#footers();
    } else if (was !== item.message.status) {
      this.#footers();
    }
    return "taken";
  }

  // Adds how long a reply took, once its figures are known.
  knowSummary(messageId, summary) {
    const item = this.items.get(messageId);
    if (!item || !summary) return;
    item.message.summary = summary;
    this.#footers();
  }

  toTheEnd() {
    if (this.stick) this.scroller.scrollTop = 1e9;
  }

  #finalStatus(state) {
    if (state.reason === "cancelled") return "cancelled";
    return state.reason === "error" ? "error" : "complete";
  }

  // Takes away what is gone or was changed; returns the id of the message that had the focus, if it was one of these.
  #dropChanged(told) {
    let focused;
    for (const [id, item] of this.items) {
      if (item.editing) continue; // what is typed there stays, whatever became of the message
      const now = told.get(id);
      const isDone = item.isWriting && now?.brief; // others have written much behind it while this tab was not told
      if (now?.edition === item.edition && !isDone) continue;
      if (item.element?.contains(document.activeElement)) focused = id;
      item.undraw();
      this.items.delete(id);
    }
    return focused;
  }

  // Has the server tell of messages that the reader comes near.
  async #ask(ids) {
    const { chatId } = this;
    const { messages } = await get(`/messages?${ids.map((id) => `ids=${id}`).join("&")}`);
    if (chatId !== this.chatId) return;
    for (const message of messages) {
      const item = this.items.get(message.id);
      if (!item || item.element) continue;
      item.edition = message.edition;
      item.tell(message);
    }
  }

  #draw(item) {
    item.draw(this.window);
    this.#takeText(item);
    item.told = null;
    for (const dress of this.dressings) dress(item);
  }

  // Takes the text of a reply as far as it was sent; the rest is fetched as it comes near the screen.
  #takeText(item) {
    const { reply, told } = item;
    if (!reply || !told) return;
    if (told.blocks) reply.take(0, told.blocks, told.open);
    if (told.outline && reply.count === 0) this.#takeOutline(item, told.outline);
    if (!reply.complete && !item.isWriting) this.#loadLater(item);
    if (item.message.status === "queued" && !item.state) item.showProgress({ status: "queued" });
  }

  async #goToAwaited() {
    const { awaited } = this;
    if (!this.items.has(awaited)) return;
    this.awaited = null;
    this.stick = false;
    const item = await this.bring(awaited).catch(() => undefined); // the page says elsewhere that nobody answers
    item?.element.scrollIntoView({ block: "start" });
    item?.more.focus({ preventScroll: true });
  }

  #footers() {
    const all = [...this.items.values()];
    const last = all.at(-1);
    const lastUser = all.findLast((item) => !item.isReply);
    const isWriting = all.some((item) => item.isWriting);
    for (const item of all) {
      if (!item.element) continue;
      const buttons = [];
      if (!item.isWriting) {
        buttons.push(["copy", "Copy"]);
        if (item === last && item.isReply && !isWriting) buttons.push(["continue", "Continue"], ["regenerate", "Write another reply"]);
        if (item === lastUser && !isWriting) buttons.push(["edit", "Ask again"]);
        if (item === last && !item.isReply && !isWriting) buttons.push(["regenerate", "Answer"]);
      }
      item.element.classList.toggle("latest", item === lastUser);
      item.showFooter(buttons);
    }
  }

  async #clicked(event) {
    const pressed = event.target.closest("button");
    if (!pressed) return;
    const item = this.items.get(Number(pressed.closest(".message")?.dataset.id));
    if (!item) return;
    if (pressed.classList.contains("copy-code")) {
      const number = pressed.closest(".code").dataset.code;
      return copyText(getText(`/messages/${item.message.id}/code/${number}`), pressed);
    }
    if (pressed.classList.contains("fold")) {
      item.reply.toggleFold();
      return undefined;
    }
    const { action } = pressed.dataset;
    if (action === "copy") return copyText(item.reply ? item.reply.text() : Promise.resolve(item.message.text), pressed);
    if (action === "edit") return this.actions.askAgain(item);
    if (action === "continue" || action === "regenerate") {
      pressed.disabled = true;
      this.stick = true;
      await (action === "continue" ? this.actions.continueReply() : this.actions.regenerate());
      pressed.disabled = false;
    }
  }

  // Replies that were not sent with the chat are fetched as they come near the screen.
  #loadWhenNear() {
    this.near = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          if (!entry.isIntersecting) continue;
          this.near.unobserve(entry.target);
          const { reply, message } = this.items.get(Number(entry.target.dataset.id)) ?? {};
          reply
            ?.load(message.long)
            .then(() => reply.release())
            .catch(() => this.near.observe(entry.target));
        }
      },
      { root: this.scroller, rootMargin: "3000px 0px" },
    );
  }

  // Of a very long reply: what there is to load, and what is near; the rest as the server has it ready.
  #takeOutline(item, outline) {
    const { reply, element } = item;
    reply.takeOutline(outline);
    if (!reply.complete) reply.load().catch(() => this.near.observe(element));
  }

  #loadLater(item) {
    if (item.reply.count === 0) item.reply.reserve(item.message.num_chars);
    this.near.observe(item.element);
  }

  // Sticks to the end while the end is in view; a wheel, touch or key upwards lets go at once.
  #followTheEnd() {
    const letGo = () => {
      this.stick = false;
    };
    new IntersectionObserver(
      ([entry]) => {
        this.stick = entry.isIntersecting;
        this.toEnd.hidden = entry.isIntersecting || this.items.size === 0;
      },
      { root: this.scroller, rootMargin: "0px 0px 48px 0px" },
    ).observe(this.end);
    this.scroller.addEventListener("wheel", (event) => event.deltaY < 0 && letGo(), { passive: true });
    this.scroller.addEventListener("touchmove", letGo, { passive: true });
    this.scroller.addEventListener("keydown", (event) => {
      if (["ArrowUp", "PageUp", "Home"].includes(event.key)) letGo();
    });
    this.toEnd.addEventListener("click", () => {
      this.stick = true;
      this.toTheEnd();
    });
    // after layout and before painting, so following never forces a layout of its own
    const follow = new ResizeObserver(() => this.toTheEnd());
    follow.observe(this.scroller);
    follow.observe(this.list);
  }
}
