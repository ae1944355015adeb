// A notification of the system when a reply is done and nobody looks. The browser asks for leave only upon a click.

import { remember, remembered } from "./remembered.js";

const KEY = "ringside.tell";

export class DoneNotice {
  constructor() {
    this.button = document.getElementById("rs-tell");
    this.told = null;
    this.wanted = remembered(KEY) === "on" && window.Notification?.permission === "granted";
    this.#show();
    this.button.addEventListener("click", () => this.#toggle());
  }

  // Offered while there is something to wait for.
  setWriting(writing) {
    this.button.hidden = !writing || !("Notification" in window);
  }

  // Once for each reply, whichever way this tab comes to hear of its end.
  tell(messageId, chatTitle, words) {
    if (!this.wanted || !document.hidden || this.told === messageId) return;
    this.told = messageId;
    const notification = new Notification(chatTitle, { body: words, tag: `ringside-${messageId}` });
    notification.addEventListener("click", () => {
      window.focus();
      notification.close();
    });
  }

  async #toggle() {
    const permission = this.wanted ? "off" : await Notification.requestPermission();
    this.wanted = permission === "granted";
    remember(KEY, this.wanted ? "on" : "off");
    this.#show();
    if (permission === "denied") this.button.textContent = "The browser blocks notifications";
  }

  #show() {
    this.button.setAttribute("aria-pressed", String(this.wanted));
    this.button.textContent = this.wanted ? "Will tell you when done" : "Tell me when done";
  }
}
