// The middle of the page: messages, the reply being written, and following its end until the reader scrolls away.

import { getText, showProblem } from "./api.js";
import { copyText } from "./copying.js";
import { button, element } from "./elements.js";
import { count, duration, plural, rate } from "./format.js";
import { leavePlainText } from "./plain_text.js";
import { Reply } from "./reply.js";
import { ENDINGS, waitingWords } from "./reply_words.js";
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
    this.items = new Map(); // message id -> {element, message, reply?, ...}
    this.chatId = null;
    this.stick = true;
    this.window = new SectionWindow(this.scroller);
    this.#followTheEnd();
    this.#loadWhenNear();
    this.list.addEventListener("click", (event) => this.#clicked(event));
  }

  get lastReplyId() {
    const replies = [...this.items.values()].filter((item) => item.reply);
    return replies.length ? replies[replies.length - 1].message.id : null;
  }

  item(messageId) {
    return this.items.get(messageId);
  }

  isLast(item) {
    return [...this.items.values()].pop() === item;
  }

  get isEmpty() {
    return this.items.size === 0;
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
    this.list.replaceChildren();
    this.stick = true;
  }

  // Brings the screen to what the server says: keeps what is there, adds what is new, takes away what is gone.
  show(chatId, messages) {
    if (chatId !== this.chatId) this.clear();
    this.chatId = chatId;
    const ids = new Set(messages.map((message) => message.id));
    const editions = new Map(messages.map((message) => [message.id, message.edition]));
    for (const [id, item] of this.items) {
      if (item.editing) continue; // what is typed there stays, whatever became of the message
      if (!ids.has(id) || editions.get(id) !== item.edition) {
        item.element.remove();
        this.items.delete(id);
      }
    }
    for (const message of messages) {
      const item = this.items.get(message.id) ?? this.#add(message);
      item.message = message;
      if (item.edition !== message.edition) continue;
      if (item.reply && message.blocks) item.reply.take(0, message.blocks, message.open);
      if (message.outline && item.reply.count === 0) this.#takeOutline(item);
      if (item.reply && !item.reply.complete && !this.#isWriting(message)) this.#loadLater(item);
      if (message.status === "queued" && !item.state) this.#progress(item, { status: "queued" });
    }
    this.#inOrder(messages, ids);
    this.#footers();
    this.toTheEnd();
    this.#goToAwaited();
  }

  // Takes one event of the stream. Returns "unknown" for a message that is not here, "gap" where blocks are missing.
  follow(event) {
    const item = this.items.get(event.message);
    if (!item) return "unknown";
    const was = item.message.status;
    item.state = event.state;
    item.message.status = event.state.status === "finished" ? this.#finalStatus(event.state) : "running";
    if (event.text && !item.reply.take(event.text.first, event.text.blocks, event.text.open)) return "gap";
    this.#progress(item);
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

  #isWriting(message) {
    return message.status === "queued" || message.status === "running";
  }

  #add(message) {
    const article = element("article", `message ${message.role}`);
    article.dataset.id = message.id;
    const item = { element: article, message, edition: message.edition };
    if (message.role === "user") {
      article.append(element("div", "said", message.text));
    } else {
      item.reply = new Reply(message.id, this.window);
      item.status = element("div", "reply-status");
      item.problem = element("div", "problem");
      item.problem.hidden = true;
      article.append(item.reply.body, item.status, item.problem);
    }
    item.footer = element("footer");
    item.footer.innerHTML =
      '<span class="words"></span><span class="switcher" role="group" aria-label="Variants"></span><span class="quick"></span>' +
      '<button type="button" class="mini more" aria-haspopup="menu" aria-expanded="false">⋯</button>';
    [item.words, item.switcher, item.quick, item.more] = item.footer.children;
    item.more.setAttribute("aria-label", message.role === "user" ? "More for this message" : "More for this reply");
    article.append(item.footer);
    this.list.append(article);
    this.items.set(message.id, item);
    return item;
  }

  // What a reply waits for before its first word.
  #progress(item, state = item.state) {
    item.element.classList.toggle("writing", this.#isWriting(item.message));
    let words = "";
    let done = null;
    if (state.notice) words = state.notice;
    if (state.cancelling && state.status !== "finished") words = "Stopping";
    else if (state.status === "queued" && state.queue_position) {
      words = waitingWords(state.queue_position);
    } else if (state.status === "queued") {
      words = "Starting";
    } else if (state.status === "loading") {
      words = state.progress ? state.progress.stage : "Loading the model";
      if (state.progress?.total) done = state.progress.done / state.progress.total;
    } else if (state.status === "prefill" && state.prefill) {
      words = `Reading the prompt, ${count(state.prefill.done_tokens)} of ${plural(state.prefill.total_tokens, "token")}`;
      done = state.prefill.total_tokens ? state.prefill.done_tokens / state.prefill.total_tokens : null;
    }
    const html = words ? `<span class="words"></span>${done === null ? "" : '<span class="bar"><span></span></span>'}` : "";
    if (item.statusShape !== html) {
      item.status.innerHTML = html;
      item.statusShape = html;
    }
    if (words) item.status.querySelector(".words").textContent = words;
    if (done !== null) item.status.querySelector(".bar span").style.width = `${(100 * done).toFixed(1)}%`;
  }

  // What is new may belong in the middle: a message that was changed, or a branch.
  #inOrder(messages, ids) {
    let at = this.list.firstElementChild;
    for (const message of messages) {
      while (at && !ids.has(Number(at.dataset.id))) at = at.nextElementSibling; // gone, but being edited
      const { element } = this.items.get(message.id);
      if (element === at) at = at.nextElementSibling;
      else this.list.insertBefore(element, at);
    }
    const gone = [...this.items].filter(([id]) => !ids.has(id));
    this.items = new Map([...gone, ...messages.map((message) => [message.id, this.items.get(message.id)])]);
  }

  #goToAwaited() {
    const item = this.items.get(this.awaited);
    if (!item) return;
    this.awaited = null;
    this.stick = false;
    item.element.scrollIntoView({ block: "start" });
    item.more.focus({ preventScroll: true });
  }

  #footers() {
    const all = [...this.items.values()];
    const last = all[all.length - 1];
    const lastUser = all.filter((item) => item.message.role === "user").pop();
    const writing = all.some((item) => this.#isWriting(item.message));
    for (const item of all) {
      const buttons = [];
      const { message } = item;
      if (!this.#isWriting(message)) {
        buttons.push(["copy", "Copy"]);
        if (item === last && item.reply && !writing) buttons.push(["continue", "Continue"], ["regenerate", "Write another reply"]);
        if (item === lastUser && !writing) buttons.push(["edit", "Ask again"]);
        if (item === last && !item.reply && !writing) buttons.push(["regenerate", "Answer"]);
      }
      const words = item.reply && !this.#isWriting(message) ? this.#words(message) : "";
      const shape = `${words}|${buttons.map(([name]) => name)}`;
      if (item.footerShape === shape) continue;
      item.footerShape = shape;
      const made = buttons.map(([name, label]) => {
        const action = button("mini", label);
        action.dataset.action = name;
        return action;
      });
      item.words.textContent = words;
      const focused = item.quick.contains(document.activeElement) ? document.activeElement.dataset.action : null;
      item.quick.replaceChildren(...made);
      if (focused) (item.quick.querySelector(`[data-action=${focused}]`) ?? item.more).focus();
      item.more.hidden = this.#isWriting(message);
      if (item.plain && this.#isWriting(message)) leavePlainText(item);
      if (item.problem) showProblem(item.problem, message.error ? { message: message.error } : null);
      item.element.classList.toggle("writing", this.#isWriting(message));
      if (!this.#isWriting(message) && item.status) item.status.innerHTML = item.statusShape = "";
    }
  }

  #words(message) {
    const parts = [plural(message.num_tokens, "token")];
    if (message.summary?.tokens_per_s_average) parts.push(`${rate(message.summary.tokens_per_s_average)} tokens/s`);
    if (message.summary?.elapsed_s) parts.push(duration(message.summary.elapsed_s));
    if (message.status === "cut") parts.push("cut when Ringside ended");
    else if (message.status === "cancelled" && !message.finish_reason) parts.push("cut by you");
    else parts.push(ENDINGS[message.finish_reason] ?? "");
    return parts.filter(Boolean).join(" · ");
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
          const item = this.items.get(Number(entry.target.dataset.id));
          item?.reply
            .load(item.message.long)
            .then(() => item.reply.release())
            .catch(() => this.near.observe(entry.target));
        }
      },
      { root: this.scroller, rootMargin: "3000px 0px" },
    );
  }

  // Of a very long reply: what there is to load, and what is near; the rest as the server has it ready.
  #takeOutline(item) {
    item.reply.takeOutline(item.message.outline);
    if (!item.reply.complete) item.reply.load().catch(() => this.near.observe(item.element));
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
