// Drafts: several variants of one reply side by side, while they are written and until one is picked.

import { post } from "./api.js";
import { watchCode } from "./copying.js";
import { button, element } from "./elements.js";
import { count, plural, rate } from "./format.js";
import { Reply } from "./reply.js";
import { ENDINGS, waitingWords } from "./reply_words.js";
import { columnFrame, selectVariant } from "./variants.js";

export class Drafts {
  // `conversation` holds the messages; `complain(problem)` shows what went wrong.
  constructor(conversation, complain) {
    this.conversation = conversation;
    this.complain = complain;
    this.columns = new Map(); // message id -> Column
    this.wanted = document.getElementById("rs-variants");
    this.element = element("section", "drafts");
    this.element.setAttribute("aria-label", "Variants to pick from");
    this.element.hidden = true;
    this.words = element("p", "drafts-words");
    this.row = element("div", "drafts-row");
    this.element.append(this.words, this.row);
    conversation.list.after(this.element);
    this.row.addEventListener("click", (event) => this.#clicked(event));
  }

  // How many variants of the next reply to write.
  get number() {
    return Number(this.wanted.value);
  }

  // Brings the screen to what the server says: the variants to pick from, those of them being written, or none.
  show(ids, writing) {
    if (ids.join() !== [...this.columns.keys()].join()) {
      this.columns = new Map(ids.map((id, place) => [id, new Column(id, place + 1, this.conversation.window)]));
      this.row.replaceChildren(...[...this.columns.values()].map((column) => column.element));
      this.row.dataset.count = ids.length;
      this.element.hidden = ids.length === 0;
      if (ids.length) this.#bringIntoView();
    }
    for (const column of this.columns.values()) column.begin(writing.includes(column.id));
    for (const { element, message } of this.conversation.drawn) {
      element.classList.toggle("drafted", this.columns.has(message.id)); // it stands in its column instead
    }
    this.#summarise();
  }

  // Takes one event of the stream; tells whether it is about one of the variants.
  follow(event) {
    const column = this.columns.get(event.message);
    if (!column) return false;
    column.take(event);
    if (event.state.status === "finished" && this.#writing.length === 0) {
      this.conversation.said.textContent = `${plural(this.columns.size, "variant")} are ready. Pick one to continue with.`;
    }
    this.#summarise();
    return true;
  }

  // From here on the columns follow their ends, and the page stays where the reader puts it.
  #bringIntoView() {
    this.conversation.stick = false;
    const { scroller } = this.conversation;
    requestAnimationFrame(() => {
      scroller.scrollTop += this.element.getBoundingClientRect().top - scroller.getBoundingClientRect().top - 40;
    });
  }

  get #writing() {
    return [...this.columns.values()].filter((column) => !column.ended);
  }

  #summarise() {
    const running = this.#writing.filter((column) => column.state?.status === "running");
    const rates = running.map((column) => column.state.summary.tokens_per_s).filter(Boolean);
    const parts = [plural(this.columns.size, "variant")];
    if (running.some((column) => column.state.summary.num_rows > 1)) {
      const all = rates.reduce((sum, each) => sum + each, 0);
      parts.push("written together");
      if (rates.length) parts.push(`${rate(all)} tokens/s in all, ${rate(all / rates.length)} each`);
    } else if (running.length) {
      parts.push("one after another: this backend writes one at a time");
    } else if (this.#writing.length === 0) {
      parts.push("pick one to continue with; the others are kept beside it");
    }
    const words = parts.join(" · ");
    if (this.words.textContent !== words) this.words.textContent = words;
  }

  async #clicked(event) {
    const pressed = event.target.closest("button[data-draft]");
    if (!pressed) return;
    const column = this.columns.get(Number(pressed.closest(".draft").dataset.id));
    pressed.disabled = true;
    try {
      if (pressed.dataset.draft === "stop") await column.stop();
      else await this.#pick(column);
    } catch (problem) {
      this.complain(problem);
    }
    pressed.disabled = false;
  }

  // The one that is picked goes on if it is still being written; the others stop where they are.
  async #pick(column) {
    await Promise.all(this.#writing.filter((each) => each !== column).map((each) => each.stop()));
    await selectVariant(column.id);
    document.getElementById("rs-input").focus();
  }
}

class Column {
  constructor(messageId, number, sectionWindow) {
    this.id = messageId;
    this.ended = false;
    this.reply = new Reply(messageId, sectionWindow);
    const frame = columnFrame("article", "draft", `Variant ${number}`);
    this.element = frame.element;
    this.element.dataset.id = messageId;
    this.note = frame.note;
    this.text = frame.text;
    this.stopButton = draftButton("stop", "Stop", `Stop variant ${number}`, "mini");
    this.stopButton.hidden = true;
    frame.head.append(this.stopButton);
    this.text.append(this.reply.body);
    this.pickButton = draftButton("pick", "Continue with this one", `Continue with variant ${number}`, "draft-pick");
    this.pickButton.disabled = true;
    this.element.append(this.pickButton);
    watchCode(this.text, this.reply.body, messageId);
    this.#followItsEnd();
  }

  // Of a variant that is over already there are no events: its text is fetched.
  begin(isWriting) {
    if (isWriting || this.state) return;
    this.ended = true;
    this.pickButton.disabled = false;
    this.reply.load().catch(() => {});
  }

  take({ run, text, state }) {
    this.run = run;
    this.state = state;
    this.ended = state.status === "finished";
    if (text && !this.reply.take(text.first, text.blocks, text.open)) this.reply.load().catch(() => {});
    this.stopButton.hidden = this.ended || state.cancelling;
    this.pickButton.disabled = state.num_tokens === 0;
    const words = this.#words();
    if (this.note.textContent !== words) this.note.textContent = words;
    this.element.classList.toggle("writing", !this.ended);
    this.element.classList.toggle("failed", state.reason === "error");
  }

  async stop() {
    if (this.run) await post(`/runs/${this.run}/stop`, {});
  }

  #words() {
    const { state } = this;
    const tokens = plural(state.num_tokens, "token");
    if (this.ended) {
      const why = [state.error, state.hint].filter(Boolean).join(" ") || ENDINGS[state.reason] || "ended";
      return `${tokens} · ${why}`;
    }
    if (state.cancelling) return "Stopping";
    if (state.notice) return state.notice;
    if (state.status === "running") return `${tokens} · ${rate(state.summary.tokens_per_s)}/s`;
    if (state.status === "prefill" && state.prefill) {
      return `Reading the prompt, ${count(state.prefill.done_tokens)} of ${count(state.prefill.total_tokens)}`;
    }
    if (state.status === "loading") return state.progress?.stage ?? "Loading the model";
    return state.queue_position ? waitingWords(state.queue_position) : "Starting";
  }

  // Sticks to the end of its text while that is in view.
  #followItsEnd() {
    let sticks = true;
    this.text.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.text;
      sticks = scrollHeight - scrollTop - clientHeight < 48;
    }, { passive: true });
    new ResizeObserver(() => {
      if (sticks) this.text.scrollTop = 1e9;
    }).observe(this.reply.body);
  }
}

function draftButton(action, label, name, className) {
  const made = button(className, label, name);
  made.dataset.draft = action;
  return made;
}
