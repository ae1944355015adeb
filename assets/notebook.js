// A notebook on the screen: one document that a person types in and the model goes on writing, at its end or at the
// cursor. While the model writes, the text is locked but can be read, and the cursor stays where it was.

import { get, patch, post, showProblem } from "./api.js";
import { copyText } from "./copying.js";
import { count, plural } from "./format.js";
import { isEnter } from "./keys.js";
import { showPrompt } from "./prompt_view.js";
import { Saving } from "./notebook_saving.js";
import { countPoints, SheetText } from "./notebook_text.js";
import { Typing } from "./notebook_typing.js";
import { UndoStack } from "./undo_stack.js";

const NEAR_END_PX = 60;
const FEW_WORDS = { queued: "Waiting", loading: "Loading the model", prefill: "Reading the text", running: "Writing" };

export class Notebook {
  // `settled()` resolves once the settings are with the server; `opened(chatId)` shows another chat; `begun()` is told
  // that the model was set to write.
  constructor({ settled, opened, begun }) {
    this.settled = settled;
    this.opened = opened;
    this.begun = begun;
    this.chatId = null;
    this.run = null; // {message, at, start, points}: what the model writes goes to `at`
    this.scroller = document.getElementById("rs-notebook-scroller");
    this.root = document.getElementById("rs-notebook-text");
    this.words = document.getElementById("rs-notebook-words");
    this.problem = document.getElementById("rs-notebook-problem");
    this.buttons = new Map([...document.querySelectorAll("[data-notebook]")].map((each) => [each.dataset.notebook, each]));
    this.text = new SheetText(this.root);
    this.steps = new UndoStack();
    this.typing = new Typing(this.text, {
      change: (start, end, text) => this.#typed(start, end, text),
      undo: () => this.#walk("undo"),
      redo: () => this.#walk("redo"),
      locked: () => this.locked,
      moved: (offset) => this.#bringIntoView(offset),
    });
    for (const [name, button] of this.buttons) {
      button.addEventListener("mousedown", (event) => event.preventDefault()); // the cursor stays in the text
      button.addEventListener("click", () => this.#pressed(name));
    }
    document.getElementById("rs-notebook").addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("visibilitychange", () => (document.hidden ? this.saving?.flush() : this.glance()));
    window.addEventListener("pagehide", () => this.saving?.leaveBehind());
    window.addEventListener("beforeunload", (event) => this.saving?.failing && event.preventDefault());
  }

  get locked() {
    return this.run !== null || this.isStarting;
  }

  // Shows the document as the server has it.
  async open(chatId) {
    const document_ = await get(`/notebooks/${chatId}`);
    if (this.chatId !== chatId) this.scroller.scrollTop = 0;
    else if (this.saving?.waiting) return; // typed meanwhile: the server hears of it first
    this.chatId = chatId;
    this.messageId = document_.id;
    this.isStarting = false;
    this.text.set(document_.text + document_.behind);
    this.steps.clear();
    this.saving = this.#newSaving(chatId, document_.version);
    const isWriting = document_.status === "queued" || document_.status === "running";
    const at = document_.text.length;
    this.run = isWriting ? { message: document_.id, at, start: at, points: countPoints(document_.text) } : null;
    this.typing.caret = { start: at, end: at };
    showProblem(this.problem, null);
    this.#show();
  }

  // Sends what is typed and lets go of the document.
  leave() {
    this.saving?.flush();
    this.chatId = null;
    this.run = null;
    this.saving = null;
  }

  #newSaving(chatId, version) {
    const saving = new Saving(this.text, chatId, version, {
      stale: () => this.saving === saving && this.#changedElsewhere(),
      say: (problem) => this.saving === saving && showProblem(this.problem, problem),
    });
    return saving;
  }

  // What this tab has already, for the stream to go on from.
  place() {
    return this.run === null ? {} : { message: this.run.message, chars: this.run.points };
  }

  // Takes one event of the stream. Returns "unknown" where the document has to be read first.
  follow(event) {
    if (this.run === null || event.message !== this.run.message) {
      return event.state.status === "finished" || this.isStarting ? "taken" : "unknown";
    }
    if (event.written) {
      if (event.written.first !== this.run.points) return "unknown";
      this.#write(event.written.text);
    }
    this.state = event.state;
    if (event.state.status === "finished") this.#finished();
    else this.#show();
    return "taken";
  }

  // Whether the document was changed elsewhere, while nothing is typed here.
  async glance() {
    const { chatId } = this;
    if (chatId === null || this.locked || this.saving.waiting || this.saving.sending) return;
    const { version } = this.saving;
    const there = await get(`/notebooks/${chatId}?with_text=false`).catch(() => null);
    if (!there || this.chatId !== chatId || this.locked || this.saving.waiting) return;
    if (there.version !== version && this.saving.version === version) await this.open(chatId);
  }

  #write(text) {
    const { run } = this;
    const isAtEnd = run.at === this.text.length;
    const isFollowed = isAtEnd && this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < NEAR_END_PX;
    this.typing.around(run.at, run.at, text.length, () => this.text.splice(run.at, run.at, text));
    run.at += text.length;
    run.points += countPoints(text);
    if (isFollowed) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  async #finished() {
    const { chatId, run, state } = this;
    const trouble = state.error ? { message: state.error, hint: state.hint } : null;
    const there = await get(`/notebooks/${chatId}?with_text=false`).catch(() => null);
    if (this.chatId !== chatId || this.run !== run) return;
    if (!there || there.num_chars !== this.text.pointsBefore(this.text.length)) {
      await this.open(chatId).catch(() => {});
    } else {
      this.saving.version = there.version;
      this.steps.push(run.start, "", this.text.slice(run.start, run.at));
      this.run = null;
    }
    showProblem(this.problem, trouble);
    this.#show();
  }

  #typed(start, end, text) {
    this.steps.push(start, this.text.slice(start, end), text);
    this.#change(start, end, text);
  }

  #change(start, end, text) {
    this.saving.note(start, end, text);
    this.text.splice(start, end, text);
    this.root.focus({ preventScroll: true });
    this.typing.place(start + text.length);
    this.#bringIntoView(start + text.length);
    this.#show();
  }

  #walk(way) {
    if (this.locked) return;
    const step = this.steps[way]();
    if (step) this.#change(step.start, step.start + step.removed.length, step.inserted);
  }

  #pressed(name) {
    if (name === "here") this.#begin(this.typing.here().end);
    else if (name === "end") this.#begin(null);
    else if (name === "stop") post(`/chats/${this.chatId}/stop`).catch((problem) => showProblem(this.problem, problem));
    else if (name === "copy") copyText(Promise.resolve(this.text.slice(0, this.text.length)), this.buttons.get("copy"));
    else if (name === "prompt") showPrompt(this.messageId).catch((problem) => showProblem(this.problem, problem));
    else this.#walk(name);
  }

  #key(event) {
    if (isEnter(event) && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.#begin(this.typing.here().end);
    } else if (event.key === "Escape" && this.run !== null) {
      this.#pressed("stop");
    }
  }

  async #begin(at) {
    if (this.locked) return;
    const { chatId } = this;
    const place = at === null || at >= this.text.length ? this.text.length : at;
    this.isStarting = true;
    this.#show();
    try {
      await this.settled();
      if (!(await this.saving.flush())) return;
      const points = this.text.pointsBefore(place);
      const wanted = { version: this.saving.version, at: place === this.text.length ? null : points };
      const { message } = await post(`/notebooks/${chatId}/write`, wanted);
      if (this.chatId !== chatId) return;
      this.state = null;
      this.run = { message, at: place, start: place, points };
      showProblem(this.problem, null);
      this.begun();
    } catch (problem) {
      showProblem(this.problem, problem);
    } finally {
      this.isStarting = false;
      this.#show();
    }
  }

  // Someone else's text is newer: this tab's goes into a notebook of its own, and theirs is shown.
  async #changedElsewhere() {
    const { chatId } = this;
    const text = this.text.slice(0, this.text.length);
    try {
      const copy = await post("/notebooks?beside=true");
      const { version } = await get(`/notebooks/${copy.id}?with_text=false`);
      await patch(`/notebooks/${copy.id}`, { start: 0, end: 0, text, version });
      this.saving = null;
      await this.open(chatId);
      this.#tellOfCopy(copy.id);
    } catch (problem) {
      showProblem(this.problem, problem);
    }
  }

  #tellOfCopy(chatId) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "mini";
    button.textContent = "Open the copy";
    button.addEventListener("click", () => this.opened(chatId));
    const said = "This document was changed in another tab; what you had here is kept in a notebook of its own.";
    this.problem.replaceChildren(said, " ", button);
    this.problem.hidden = false;
  }

  #bringIntoView(at) {
    const { node, offset } = this.text.placeOf(at);
    const sheet = node.parentElement.getBoundingClientRect();
    const shown = this.scroller.getBoundingClientRect();
    if (sheet.top > shown.bottom || sheet.bottom < shown.top) node.parentElement.scrollIntoView({ block: "nearest" });
    const range = document.createRange();
    range.setStart(node, offset);
    const drawn = range.getClientRects()[0];
    const line = drawn ?? node.parentElement.querySelector("br")?.getBoundingClientRect() ?? node.parentElement.getBoundingClientRect();
    const view = this.scroller.getBoundingClientRect();
    if (line.bottom > view.bottom - 24) this.scroller.scrollTop += line.bottom - view.bottom + 48;
    else if (line.top < view.top + 12) this.scroller.scrollTop += line.top - view.top - 48;
  }

  #show() {
    const { locked, state } = this;
    this.root.setAttribute("aria-readonly", String(locked));
    this.root.classList.toggle("locked", locked);
    for (const [name, button] of this.buttons) {
      if (name === "stop") button.hidden = this.run === null;
      else if (name === "here" || name === "end") button.hidden = this.run !== null;
      else if (name === "undo" || name === "redo") button.disabled = locked || !this.steps.has(name);
    }
    this.root.dataset.empty = this.text.length ? "" : this.root.dataset.placeholder;
    this.words.textContent = this.locked ? progress(state) : plural(this.text.length, "character");
  }
}

function progress(state) {
  if (!state) return "Starting";
  if (state.notice) return state.notice;
  if (state.cancelling) return "Stopping";
  if (state.status === "prefill" && state.prefill) {
    return `Reading the text, ${count(state.prefill.done_tokens)} of ${plural(state.prefill.total_tokens, "token")}`;
  }
  if (state.status === "loading" && state.progress) return state.progress.stage;
  if (state.status === "running") return `Writing; the text is locked until it is done or stopped`;
  return FEW_WORDS[state.status] ?? "";
}
