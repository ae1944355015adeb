// The middle of the page: messages, the reply being written, and following its end until the reader scrolls away.

import { getText, showProblem } from "./api.js";
import { copyText } from "./copying.js";
import { count, duration, plural, rate } from "./format.js";
import { Reply } from "./reply.js";

const ENDINGS = {
  stop: "finished",
  length: "reached its length limit",
  cancelled: "stopped by you",
  error: "ended by an error",
  time: "reached its time limit",
  loop: "stopped for going round in circles",
};

export class Conversation {
  // `actions`: continueReply, regenerate, edit(text), showFigures(messageId), all returning promises.
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

  clear() {
    this.chatId = null;
    this.items.clear();
    this.list.replaceChildren();
    this.stick = true;
  }

  // Brings the screen to what the server says: keeps what is there, adds what is new, takes away what is gone.
  show(chatId, messages) {
    if (chatId !== this.chatId) this.clear();
    this.chatId = chatId;
    const ids = new Set(messages.map((message) => message.id));
    for (const [id, item] of this.items) {
      if (!ids.has(id)) {
        item.element.remove();
        this.items.delete(id);
      }
    }
    for (const message of messages) {
      const item = this.items.get(message.id) ?? this.#add(message);
      item.message = message;
      if (item.reply && message.blocks) item.reply.take(0, message.blocks, message.open);
      if (item.reply && !item.reply.complete && !this.#isWriting(message)) this.#loadLater(item);
      if (message.status === "queued" && !item.state) this.#progress(item, { status: "queued" });
    }
    this.#footers();
    this.toTheEnd();
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
    const element = document.createElement("article");
    element.className = `message ${message.role}`;
    element.dataset.id = message.id;
    const item = { element, message };
    if (message.role === "user") {
      const text = document.createElement("div");
      text.className = "said";
      text.textContent = message.text;
      element.append(text);
    } else {
      item.reply = new Reply(message.id);
      item.status = document.createElement("div");
      item.status.className = "reply-status";
      item.problem = document.createElement("div");
      item.problem.className = "problem";
      item.problem.hidden = true;
      element.append(item.reply.body, item.status, item.problem);
    }
    item.footer = document.createElement("footer");
    element.append(item.footer);
    this.list.append(element);
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
      words = state.queue_position === 1 ? "Waiting: next in line" : `Waiting: ${state.queue_position - 1} before it`;
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
        if (item === last && item.reply && !writing) buttons.push(["continue", "Continue"], ["regenerate", "Regenerate"]);
        if (item.reply && item !== last) buttons.push(["figures", "Figures"]);
        if (item === lastUser && !writing) buttons.push(["edit", "Edit"]);
        if (item === last && !item.reply && !writing) buttons.push(["regenerate", "Answer this"]);
      }
      const words = item.reply && !this.#isWriting(message) ? this.#words(message) : "";
      const shape = `${words}|${buttons.map(([name]) => name)}`;
      if (item.footerShape === shape) continue;
      item.footerShape = shape;
      const made = buttons.map(([name, label]) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "mini";
        button.dataset.action = name;
        button.textContent = label;
        return button;
      });
      const span = document.createElement("span");
      span.className = "words";
      span.textContent = words;
      item.footer.replaceChildren(span, ...made);
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
    else parts.push(ENDINGS[message.finish_reason] ?? "");
    return parts.filter(Boolean).join(" · ");
  }

  async #clicked(event) {
    const button = event.target.closest("button");
    if (!button) return;
    const item = this.items.get(Number(button.closest(".message")?.dataset.id));
    if (!item) return;
    if (button.classList.contains("copy-code")) {
      const number = button.closest(".code").dataset.code;
      return copyText(getText(`/messages/${item.message.id}/code/${number}`), button);
    }
    if (button.classList.contains("fold")) {
      button.setAttribute("aria-expanded", item.reply.body.classList.toggle("unfolded"));
      return undefined;
    }
    const { action } = button.dataset;
    if (action === "copy") return copyText(item.reply ? item.reply.text() : Promise.resolve(item.message.text), button);
    if (action === "figures") return this.actions.showFigures(item.message.id);
    if (action === "edit") return this.#edit(item);
    if (action === "continue" || action === "regenerate") {
      button.disabled = true;
      this.stick = true;
      await (action === "continue" ? this.actions.continueReply() : this.actions.regenerate());
      button.disabled = false;
    }
  }

  #edit(item) {
    const said = item.element.querySelector(".said");
    if (!said || item.element.querySelector("textarea")) return;
    const form = document.createElement("form");
    form.className = "edit";
    form.innerHTML =
      '<textarea aria-label="Edit the message"></textarea><div class="edit-buttons">' +
      '<button type="submit" class="main-button">Send again</button><button type="button" class="text-button">Cancel</button></div>';
    const area = form.querySelector("textarea");
    area.value = item.message.text;
    area.rows = Math.min(14, item.message.text.split("\n").length + 1);
    const close = () => {
      form.remove();
      said.hidden = false;
    };
    form.querySelector("button[type=button]").addEventListener("click", close);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      this.stick = true;
      if (await this.actions.edit(area.value)) close();
    });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    said.hidden = true;
    said.after(form);
    area.focus();
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
            .load()
            .then(() => item.reply.release())
            .catch(() => this.near.observe(entry.target));
        }
      },
      { root: this.scroller, rootMargin: "3000px 0px" },
    );
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
