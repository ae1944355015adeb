// What a person does to the messages of a chat: the menu of each one, the switchers of variants, undo, branches.

import { get, post, remove } from "./api.js";
import { copyText } from "./copying.js";
import { askWhereToCut, placeOfSelection } from "./cut_dialog.js";
import { openEditBox } from "./edit_box.js";
import { openMenu } from "./menu.js";
import { leavePlainText, togglePlainText } from "./plain_text.js";
import { showPrompt } from "./prompt_view.js";
import { showTree } from "./tree.js";
import { Undo } from "./undo.js";
import { announceChange, selectVariant, Switchers } from "./variants.js";

export class MessageControls {
  // `complain(problem)` shows what went wrong; `begin(path, body, accepted)` has a reply written; `isWriting()` tells
  // whether one is being written in the chat; `showFigures(messageId)` opens the panel.
  constructor(conversation, { complain, begin, isWriting, showFigures }) {
    this.conversation = conversation;
    this.complain = complain;
    this.begin = begin;
    this.isWriting = isWriting;
    this.showFigures = showFigures;
    this.switchers = new Switchers(conversation, complain);
    this.undo = new Undo((sentence) => this.say(sentence), complain);
    this.branches = document.getElementById("rs-branches");
    this.branches.addEventListener("click", () => this.showBranches());
    conversation.list.addEventListener("pointerdown", (event) => this.#noteSelection(event), true);
    conversation.list.addEventListener("click", (event) => this.#clicked(event));
  }

  say(sentence) {
    this.conversation.said.textContent = sentence;
  }

  // Brings the controls to what the server says of a chat, whose messages are on screen already.
  async show(chatId) {
    this.chatId = chatId;
    this.branches.hidden = chatId === null;
    if (chatId === null) return this.undo.show(null, 0);
    try {
      const { variants, num_steps: numSteps } = await get(`/chats/${chatId}/variants`);
      if (chatId !== this.chatId) return undefined;
      this.switchers.show(variants);
      this.undo.show(chatId, numSteps);
    } catch {
      // the connection's own message says it
    }
  }

  async showBranches() {
    const chosen = await this.#try(() => showTree(this.chatId));
    if (!chosen) return;
    this.conversation.stick = false;
    await this.#try(() => selectVariant(chosen));
    this.conversation.goToWhenShown(chosen);
  }

  // Opens the box to change a message in; `asks` for one that is to be asked again.
  async edit(item, asks) {
    const { message } = item;
    const isUser = message.role === "user";
    const text = isUser ? message.text : await this.#try(() => item.reply.text());
    if (text === undefined) return;
    if (item.plain) leavePlainText(item);
    openEditBox(item, {
      text,
      asks,
      ask: isUser ? (typed, accepted) => this.begin(`/messages/${message.id}/ask`, { text: typed }, accepted) : null,
      closed: (changed) => {
        item.more.focus();
        if (changed) announceChange();
      },
    });
  }

  #clicked(event) {
    const button = event.target.closest(".more");
    if (!button) return;
    const item = this.conversation.item(Number(button.closest(".message").dataset.id));
    const writing = this.isWriting();
    const entries = this.#entries(item, writing);
    const note = writing ? "Stop the reply that is being written to change messages." : "";
    openMenu(button, button.getAttribute("aria-label"), entries, { note });
  }

  #entries(item, writing) {
    const { id, role } = item.message;
    const isReply = role === "assistant";
    const isLast = this.conversation.isLast(item);
    const change = (label, run, more = {}) => ({ label, run: () => this.#try(run), disabled: writing, ...more });
    const look = (label, run) => ({ label, run: () => this.#try(run) });
    const start = (what) => () => this.begin(`/messages/${id}/${what}`);
    const selection = isReply && this.#selectionIn(item);
    return [
      look("Copy", () => copyText(isReply ? item.reply.text() : Promise.resolve(item.message.text), item.more)),
      change("Edit", () => this.edit(item, false)),
      !isReply && change("Ask again", () => this.edit(item, true)),
      change(isReply || !isLast ? "Write another reply" : "Answer", start("answer")),
      isReply && isLast && change("Continue", start("resume")),
      null,
      !isLast && change("Branch from here", () => this.#branch(id)),
      isReply && change(selection ? "Keep up to the selection’s end…" : "Keep the beginning…", () => this.#cut(item, selection)),
      this.switchers.of(id).length > 1 && look("Compare variants", () => this.switchers.compare(id)),
      isReply && look(item.plain ? "Show formatted" : "Show as plain text", () => togglePlainText(item)),
      isReply && look("Figures", () => this.showFigures(id)),
      isReply && look("Exact prompt", () => showPrompt(id)),
      null,
      change("Delete", () => this.#delete(id), { danger: true }),
    ];
  }

  async #branch(messageId) {
    await post(`/messages/${messageId}/branch`);
    announceChange();
    this.say("The chat now ends here. What you send next begins a branch.");
    document.getElementById("rs-input").focus();
  }

  async #cut(item, selection) {
    const text = await item.reply.text();
    const end = selection ? placeOfSelection(text, item.plain ?? item.reply.body, selection) : text.length;
    const cut = await askWhereToCut(item.message.id, text, end);
    if (cut === null) return;
    announceChange();
    this.conversation.goToWhenShown(cut);
    this.say("The beginning is kept as a variant. Continue goes on from there.");
  }

  async #delete(messageId) {
    await remove(`/messages/${messageId}`);
    announceChange();
    this.say("Deleted, with what followed. Ctrl+Z brings it back.");
    document.getElementById("rs-undo").hidden = false;
    document.getElementById("rs-undo").focus();
  }

  // Pressing the button may take the selection away, so it is noted before.
  #noteSelection(event) {
    if (event.target.closest(".more")) this.selection = currentRange();
  }

  #selectionIn(item) {
    const range = currentRange() ?? this.selection;
    this.selection = null;
    const shown = item.plain ?? item.reply.body;
    return range && shown.contains(range.endContainer) ? range : null;
  }

  async #try(action) {
    try {
      this.complain(null);
      return await action();
    } catch (problem) {
      this.complain(problem);
      return undefined;
    }
  }
}

function currentRange() {
  const selection = window.getSelection();
  return selection.rangeCount && !selection.isCollapsed ? selection.getRangeAt(0).cloneRange() : null;
}
