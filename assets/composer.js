// The box one writes in. What is typed is kept in the browser until it is sent, a draft for each chat.

import { showProblem } from "./api.js";
import { isEnter } from "./keys.js";
import { remember, remembered } from "./remembered.js";

const KEY = "ringside.draft.";

export class Composer {
  // `send(text)` resolves once the server has the message and rejects with a Problem; `stop()` stops the reply.
  constructor(send, stop) {
    this.form = document.getElementById("rs-form");
    this.input = document.getElementById("rs-input");
    this.sendButton = document.getElementById("rs-send");
    this.stopButton = document.getElementById("rs-stop");
    this.problem = document.getElementById("rs-composer-problem");
    this.mode = document.getElementById("rs-mode");
    this.key = `${KEY}new`;
    this.sending = false;
    this.send = send;
    this.input.addEventListener("input", () => this.#typed());
    new ResizeObserver(() => this.#fit()).observe(this.form); // shown after a notebook, or in another width
    this.input.addEventListener("keydown", (event) => {
      if (isEnter(event) && !event.shiftKey) {
        event.preventDefault();
        this.form.requestSubmit();
      }
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.stopButton.addEventListener("click", () => stop().catch((problem) => this.complain(problem)));
    window.addEventListener("storage", (event) => {
      if (event.key === this.key && document.activeElement !== this.input) this.#put(event.newValue ?? "");
    });
  }

  // Shows the draft of a chat.
  use(chatId) {
    this.key = `${KEY}${chatId ?? "new"}`;
    this.#put(remembered(this.key, ""));
    this.complain(null);
  }

  // Makes a text the draft, for the person to change or send.
  fill(text) {
    this.#put(text);
    this.#typed();
    this.input.focus();
    this.input.setSelectionRange(text.length, text.length);
  }

  setWriting(writing) {
    this.stopButton.hidden = !writing;
    this.sendButton.hidden = writing;
  }

  setMode(continuesText) {
    this.mode.textContent = continuesText ? "This is a base model: it continues your text." : "";
    this.input.placeholder = continuesText ? "Begin a text" : "Write a message";
  }

  complain(problem) {
    showProblem(this.problem, problem);
  }

  async submit() {
    const text = this.input.value;
    if (this.sending || !this.stopButton.hidden || !text.trim()) return;
    this.sending = true;
    this.sendButton.disabled = true;
    this.complain(null);
    const { key } = this;
    try {
      await this.send(text);
      remember(key, null);
      if (this.input.value === text) this.#put("");
      this.#typed();
    } catch (problem) {
      this.complain(problem); // the text stays where it is
    } finally {
      this.sending = false;
      this.sendButton.disabled = false;
    }
  }

  #typed() {
    remember(this.key, this.input.value || null);
    this.#fit();
  }

  #put(text) {
    this.input.value = text;
    this.#fit();
  }

  // As high as its text; how high it may get is the style sheet's business. Off the screen it has no height to tell.
  #fit() {
    this.input.style.height = "auto";
    const { scrollHeight } = this.input;
    if (scrollHeight) this.input.style.height = `${scrollHeight}px`;
  }
}
