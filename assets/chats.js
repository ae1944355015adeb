// The list of chats: search, open, rename in place, delete after asking.

import { get, patch, remove } from "./api.js";
import { day } from "./format.js";

const SEARCH_PAUSE_MS = 150;

export class Chats {
  // `open(chatId or null)` shows a chat, or a new one; `complain(problem)` shows what went wrong.
  constructor(open, complain) {
    this.open = open;
    this.complain = complain;
    this.list = document.getElementById("rs-chat-list");
    this.empty = document.getElementById("rs-chat-list-empty");
    this.search = document.getElementById("rs-search");
    this.current = null;
    this.rows = [];
    this.asked = 0;
    document.getElementById("rs-new-chat").addEventListener("click", () => open(null));
    this.search.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.refresh(), SEARCH_PAUSE_MS);
    });
    this.list.addEventListener("click", (event) => this.#clicked(event));
  }

  async refresh() {
    const asked = ++this.asked;
    const query = this.search.value.trim();
    try {
      const { chats } = await get(`/chats?query=${encodeURIComponent(query)}`);
      if (asked !== this.asked) return;
      this.rows = chats;
      this.#draw(query);
    } catch {
      // the connection's own message says it
    }
  }

  mark(chatId) {
    this.current = chatId;
    for (const row of this.list.children) {
      const isCurrent = Number(row.dataset.id) === chatId;
      row.classList.toggle("current", isCurrent);
      row.querySelector(".chat-open")?.setAttribute("aria-current", isCurrent ? "page" : "false");
    }
  }

  #draw(query) {
    if (this.list.querySelector("input, .confirm")) return; // being renamed or asked about
    const focused = document.activeElement?.closest?.("#rs-chat-list li")?.dataset.id;
    this.list.replaceChildren(...this.rows.map((chat) => this.#row(chat)));
    this.empty.hidden = this.rows.length > 0;
    this.empty.textContent = query ? `No chat has “${query}” in its title.` : "Chats appear here.";
    this.mark(this.current);
    if (focused) this.list.querySelector(`li[data-id="${focused}"] .chat-open`)?.focus();
  }

  #row(chat) {
    const row = document.createElement("li");
    row.dataset.id = chat.id;
    row.className = chat.writing ? "writing" : "";
    row.innerHTML =
      '<button type="button" class="chat-open"><span class="chat-name"></span><span class="chat-when"></span></button>' +
      '<span class="chat-tools"><button type="button" class="icon-button small" data-do="rename" aria-label="Rename">' +
      '<svg viewBox="0 0 20 20" width="14" height="14" aria-hidden="true"><path d="M4 16l1-4 8-8 3 3-8 8z" fill="none" ' +
      'stroke="currentColor" stroke-width="1.6" stroke-linejoin="round"/></svg></button>' +
      '<button type="button" class="icon-button small" data-do="delete" aria-label="Delete">' +
      '<svg viewBox="0 0 20 20" width="14" height="14" aria-hidden="true"><path d="M4 6h12M8 6V4h4v2M6 6l1 10h6l1-10" ' +
      'fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round"/></svg></button></span>';
    row.querySelector(".chat-name").textContent = chat.title || "New chat";
    row.querySelector(".chat-when").textContent = chat.writing ? "writing" : day(chat.updated_at_s);
    return row;
  }

  #clicked(event) {
    const row = event.target.closest("li");
    const button = event.target.closest("button");
    if (!row || !button) return;
    const id = Number(row.dataset.id);
    const chat = this.rows.find((each) => each.id === id);
    if (button.classList.contains("chat-open")) this.open(id);
    else if (button.dataset.do === "rename") this.#rename(row, chat);
    else if (button.dataset.do === "delete") this.#ask(row, chat);
  }

  #rename(row, chat) {
    const input = document.createElement("input");
    input.value = chat.title;
    input.setAttribute("aria-label", "New title");
    input.className = "chat-rename";
    let done = false;
    const finish = async (keep) => {
      if (done) return;
      done = true;
      input.remove();
      try {
        if (keep && input.value.trim() && input.value !== chat.title) await patch(`/chats/${chat.id}`, { title: input.value });
      } catch (problem) {
        this.complain(problem);
      }
      this.refresh();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") finish(true);
      if (event.key === "Escape") finish(false);
    });
    input.addEventListener("blur", () => finish(true));
    row.replaceChildren(input);
    input.select();
  }

  #ask(row, chat) {
    const ask = document.createElement("div");
    ask.className = "confirm";
    ask.innerHTML = '<span>Delete this chat?</span><button type="button" class="mini danger">Delete</button><button type="button" class="mini">Keep</button>';
    const [yes, no] = ask.querySelectorAll("button");
    no.addEventListener("click", () => {
      ask.remove();
      this.refresh();
    });
    yes.addEventListener("click", async () => {
      ask.remove();
      try {
        await remove(`/chats/${chat.id}`);
        if (this.current === chat.id) this.open(null);
      } catch (problem) {
        this.complain(problem);
      }
      this.refresh();
    });
    row.replaceChildren(ask);
    yes.focus();
  }
}
