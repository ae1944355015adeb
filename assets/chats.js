// The list of chats: open, rename in place, pin, folders, export, delete after asking.

import { get, patch, put, remove } from "./api.js";
import { openMenu } from "./menu.js";
import { foldersOf, rowsOf } from "./chat_rows.js";
import { watchDrag } from "./chat_drag.js";
import { chatElement, headElement, questionElement, typingElement } from "./chat_elements.js";
import { remember, remembered } from "./remembered.js";
import { RowWindow } from "./row_window.js";

const FOLDED_KEY = "ringside.folded";
const FORMATS = [
  ["Markdown", "md"],
  ["Plain text", "txt"],
  ["Web page (HTML)", "html"],
  ["JSON, with everything", "json"],
];

export class Chats {
  // `open(chatId or null)` shows a chat, or a new one; `complain(problem)` shows what went wrong.
  constructor(open, complain) {
    this.open = open;
    this.complain = complain;
    this.list = document.getElementById("rs-chat-list");
    this.empty = document.getElementById("rs-chat-list-empty");
    this.current = null;
    this.chats = []; // all of them, pinned first, then as they were written to
    this.asked = 0;
    this.folded = new Set(JSON.parse(remembered(FOLDED_KEY, "[]")));
    this.instead = new Map(); // key of a row -> what stands in its place: an input, a question
    this.rows = new RowWindow(
      document.getElementById("rs-chat-scroller"),
      this.list,
      {
        draw: (row) => this.#element(row),
        shape: (row) => this.#shape(row),
        drawn: () => this.list.querySelector('[tabindex="0"]') || this.#tabStop(this.list.querySelector("li")),
      },
    );
    document.getElementById("rs-new-chat").addEventListener("click", () => open(null));
    this.list.addEventListener("click", (event) => this.#clicked(event));
    this.list.addEventListener("keydown", (event) => this.#pressed(event));
    this.list.addEventListener("contextmenu", (event) => this.#contextMenu(event));
    watchDrag(this.list, (chatId) => this.chat(chatId), (chat, folder) => this.#file(chat, folder));
  }

  async refresh() {
    const asked = ++this.asked;
    try {
      const { chats } = await get("/chats");
      if (asked !== this.asked) return;
      this.chats = chats;
      this.#draw();
    } catch {
      // the connection's own message says it
    }
  }

  chat(chatId) {
    return this.chats.find((chat) => chat.id === chatId);
  }

  mark(chatId) {
    this.current = chatId;
    this.#draw();
  }

  #draw() {
    this.empty.hidden = this.chats.length > 0 || this.asked === 0;
    this.rows.show(rowsOf(this.chats, this.folded));
  }

  #shape(row) {
    if (this.instead.has(row.key)) return this.instead.get(row.key);
    if (!row.chat) return `${row.head} ${row.count} ${row.folded}`;
    return JSON.stringify([row.chat, row.chat.id === this.current, new Date().toDateString()]);
  }

  #element(row) {
    const instead = this.instead.get(row.key);
    if (instead) return instead;
    return row.chat ? chatElement(row.chat, row.chat.id === this.current) : headElement(row);
  }

  #rowOf(element) {
    return this.rows.rows[this.rows.indexOf(element.closest("li")?.dataset.key)];
  }

  #clicked(event) {
    const button = event.target.closest("button");
    const row = button && this.#rowOf(button);
    if (!row || this.instead.has(row.key)) return;
    this.#tabStop(button.closest("li"));
    if (button.dataset.do === "menu") this.#openMenu(button, row);
    else if (row.chat) this.open(row.chat.id);
    else this.#fold(row, !row.folded);
  }

  #contextMenu(event) {
    const row = this.#rowOf(event.target);
    const button = event.target.closest("li")?.querySelector("[data-do=menu]");
    if (!row || !button) return;
    event.preventDefault();
    const byKeyboard = event.clientX === 0 && event.clientY === 0;
    this.#openMenu(button, row, byKeyboard ? null : { x: event.clientX, y: event.clientY });
  }

  #openMenu(button, row, at = null) {
    if (row.chat) openMenu(button, row.chat.title || "New chat", this.#chatItems(row), { at });
    else openMenu(button, row.head, this.#folderItems(row), { at });
  }

  #chatItems({ key, chat }) {
    const folders = foldersOf(this.chats);
    return [
      { label: "Rename", run: () => this.#rename(key, chat) },
      { label: chat.pinned ? "Unpin" : "Pin", run: () => this.#change(() => patch(`/chats/${chat.id}`, { pinned: !chat.pinned })) },
      {
        label: "Move to folder",
        items: [
          ...folders.map((folder) => ({ label: folder, checked: folder === chat.folder, run: () => this.#file(chat, folder) })),
          { label: "No folder", checked: !chat.folder, run: () => this.#file(chat, "") },
          { label: "New folder…", run: () => this.#type(key, "Name of the new folder", "", (name) => this.#file(chat, name)) },
        ],
      },
      { label: "Export", items: FORMATS.map(([label, ending]) => ({ label, href: `/app/chats/${chat.id}/export.${ending}` })) },
      { label: "Delete", danger: true, run: () => this.#askToDelete(key, chat) },
    ];
  }

  #folderItems({ key, folder }) {
    const rename = (name) => this.#change(() => patch("/folders", { folder, name }));
    return [
      { label: "Rename", run: () => this.#type(key, "New name of the folder", folder, rename) },
      { label: "Dissolve, keep the chats", run: () => rename("") },
    ];
  }

  // Arrow keys walk the list, left and right fold a folder; F2 renames and Delete asks, as in file managers.
  #pressed(event) {
    const row = this.#rowOf(event.target);
    if (!row || event.target.closest("input, .confirm") || event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event;
    const at = this.rows.indexOf(row.key);
    const last = this.rows.rows.length - 1;
    const goals = { ArrowDown: Math.min(at + 1, last), ArrowUp: Math.max(at - 1, 0), Home: 0, End: last };
    if (key in goals) this.#focus(goals[key]);
    else if (key === "ArrowLeft" && row.head) this.#fold(row, true);
    else if (key === "ArrowRight" && row.head) this.#fold(row, false);
    else if (key === "F2" && row.chat) this.#rename(row.key, row.chat);
    else if (key === "Delete" && row.chat) this.#askToDelete(row.key, row.chat);
    else return;
    event.preventDefault();
  }

  #focus(index) {
    const element = this.rows.reveal(index);
    this.#tabStop(element);
    element.querySelector("button, input").focus();
  }

  // One row is reached with Tab, the others from there with the arrow keys.
  #tabStop(element) {
    for (const button of this.list.querySelectorAll('[tabindex="0"]')) button.tabIndex = -1;
    for (const button of element?.querySelectorAll("button") ?? []) button.tabIndex = 0;
  }

  #fold(row, folded) {
    if (folded) this.folded.add(row.key);
    else this.folded.delete(row.key);
    remember(FOLDED_KEY, JSON.stringify([...this.folded]));
    this.#draw();
  }

  #file(chat, folder) {
    if (folder !== chat.folder) this.#change(() => put(`/chats/${chat.id}/folder`, { folder }));
  }

  #rename(key, chat) {
    this.#type(key, "New title", chat.title, (title) => this.#change(() => patch(`/chats/${chat.id}`, { title })));
  }

  #askToDelete(key, chat) {
    const question = questionElement("Delete this chat?", "Delete", "Keep", (yes) => {
      this.#putBack(key);
      if (!yes) return;
      this.#change(async () => {
        await remove(`/chats/${chat.id}`);
        if (this.current === chat.id) this.open(null);
      });
    });
    this.#putInstead(key, question);
  }

  #type(key, label, value, take) {
    const input = typingElement(label, value, (text) => {
      this.#putBack(key);
      if (text && text !== value) take(text);
    });
    this.#putInstead(key, input);
  }

  #putInstead(key, element) {
    this.instead.set(key, element);
    this.#draw();
    this.rows.reveal(this.rows.indexOf(key));
    element.querySelector("input, button").focus();
    element.querySelector("input")?.select();
  }

  #putBack(key) {
    const hadFocus = this.instead.get(key)?.contains(document.activeElement);
    this.instead.delete(key);
    this.#draw();
    const at = this.rows.indexOf(key);
    if (hadFocus && at >= 0) this.#focus(at);
  }

  async #change(call) {
    try {
      await call();
    } catch (problem) {
      this.complain(problem);
    }
    this.refresh();
  }
}
