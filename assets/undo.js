// Takes back the last edit, variant, branch or deletion of a chat: a button, and Ctrl+Z outside of text fields.

import { post } from "./api.js";
import { announceChange } from "./variants.js";

const UNDONE = {
  branch: "Undone: the chat is on its former branch again.",
  edit: "Undone: the former text is back.",
  delete: "Undone: what was deleted is back.",
};

export class Undo {
  // `say(sentence)` tells screen readers, `complain(problem)` shows what went wrong.
  constructor(say, complain) {
    this.say = say;
    this.complain = complain;
    this.chatId = null;
    this.button = document.getElementById("rs-undo");
    this.button.addEventListener("click", () => this.undo());
    document.addEventListener("keydown", (event) => this.#pressed(event));
  }

  show(chatId, numSteps) {
    this.chatId = chatId;
    this.button.hidden = chatId === null || numSteps === 0;
  }

  // Asks the server whether or not the button is there yet: right after an edit, a hand may be faster than the answer
  // that brings the button. Who sees no button and has nothing to undo is not disturbed by a message.
  async undo() {
    if (this.busy || this.chatId === null) return;
    const expected = !this.button.hidden;
    this.busy = true;
    try {
      const { undone, num_steps: numSteps } = await post(`/chats/${this.chatId}/undo`);
      this.show(this.chatId, numSteps);
      announceChange();
      this.say(UNDONE[undone]);
      if (this.button.hidden) document.getElementById("rs-scroller").focus();
    } catch (problem) {
      if (expected) this.complain(problem);
      else this.say(problem.message);
    }
    this.busy = false;
  }

  #pressed(event) {
    if (event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
    if (event.target.closest?.("input, textarea, select, [contenteditable], dialog, .js-plotly-plot")) return;
    event.preventDefault();
    this.undo();
  }
}
