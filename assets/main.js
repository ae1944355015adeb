// Puts the page together once Gradio has drawn it: which chat is on screen, what arrives, what is sent.

import { get, post, Problem } from "./api.js";
import { Chats } from "./chats.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { DoneNotice } from "./done_notice.js";
import { Drafts } from "./drafts.js";
import { element } from "./elements.js";
import { Engine } from "./engine.js";
import { count, plural, rate } from "./format.js";
import { GoTo } from "./go_to.js";
import { iconButton } from "./icons.js";
import { MessageControls } from "./message_controls.js";
import { Notebook } from "./notebook.js";
import { Panel } from "./panel.js";
import { Presets } from "./presets.js";
import { ReadingPlace } from "./reading_place.js";
import { Search } from "./search.js";
import { watchCopying } from "./selection_copy.js";
import { Setup } from "./setup.js";
import { watchSession } from "./session.js";
import { Stream } from "./stream.js";
import { watchChrome } from "./chrome.js";
import { watchImports } from "./import_files.js";

const NEEDED = ["rs-chat-list", "rs-title", "rs-settings", "rs-openings", "rs-messages", "rs-input", "rs-chart-speed"];

class Page {
  constructor() {
    this.chatId = null;
    this.asked = 0;
    this.writing = null; // message that a reply is being written into
    this.elsewhere = new Set(); // replies being written on branches that are not on screen
    this.titleDue = 0;
    this.chrome = watchChrome();
    const complain = (problem) => this.composer.complain(problem);
    this.composer = new Composer(
      (text) => this.send(text),
      () => post(`/chats/${this.chatId}/stop`),
    );
    this.conversation = new Conversation({
      continueReply: () => this.start("continue"),
      regenerate: () => this.start("regenerate", { variants: this.drafts.number }),
      askAgain: (item) => this.controls.edit(item, true),
    });
    this.drafts = new Drafts(this.conversation, complain);
    this.reading = new ReadingPlace(this.conversation);
    this.goTo = new GoTo(this.conversation, this.reading);
    this.notice = new DoneNotice();
    watchCopying(this.conversation);
    this.controls = new MessageControls(this.conversation, {
      complain,
      begin: (path, body, accepted) => this.begin(path, body, accepted),
      isWriting: () => this.isWriting,
      showFigures: (messageId) => this.showFigures(messageId).then(() => this.chrome.open("panel")),
    });
    document.addEventListener("ringside:changed", () => this.load());
    this.notebook = new Notebook({
      settled: () => this.setup.settled(),
      opened: (chatId) => this.open(chatId),
      begun: () => this.stream.open(),
    });
    document.getElementById("rs-new-notebook").addEventListener("click", () => this.newNotebook());
    this.panel = new Panel();
    this.engine = new Engine(complain, () => this.chatId);
    this.setup = new Setup(
      () => this.chatId,
      (text) => this.composer.fill(text),
      (seen) => this.composer.setMode(seen.continues_text),
    );
    this.chats = new Chats((chatId) => this.open(chatId), complain);
    this.search = new Search(
      () => this.chats.chats,
      (chatId) => this.open(chatId),
      (...hit) => this.openHit(...hit).catch(complain),
    );
    this.presets = new Presets(this.setup, () => this.chatId);
    watchSession(complain).catch(() => {});
    watchImports((chatId) => this.open(chatId), () => this.chats.refresh());
    this.stream = new Stream(() => this.place(), {
      run: (event) => this.follow(event),
      reload: () => (this.notebook.chatId === this.chatId && !this.notebook.locked ? this.notebook.glance() : this.load()),
      chats: () => {
        this.chats.refresh();
        this.notebook.glance();
        this.nameNotebook();
      },
      settings: () => this.setup.changedElsewhere(),
      status: (status) => this.engine.show(status),
      connection: (there) => this.connected(there),
      refused: (problem) => this.refused(problem),
      asleep: () => this.glance(),
    });
    document.getElementById("rs-demo").addEventListener("click", () => this.demo());
    window.addEventListener("hashchange", () => this.open(chatInAddress()));
  }

  // Shows a chat; null is a new one, which the server hears of with its first message.
  async open(chatId) {
    if (chatId !== this.chatId || !this.opened) {
      this.opened = true;
      this.notebook.leave();
      this.chatId = chatId;
      this.writing = null;
      window.ringside.chatId = chatId;
      const hash = chatId === null ? "" : `#chat=${chatId}`;
      if (location.hash !== hash) history.pushState(null, "", hash || location.pathname);
      this.composer.use(chatId);
      this.composer.setWriting(false);
      this.elsewhere.clear();
      this.changes = undefined;
      this.conversation.clear();
      this.drafts.show([], []);
      this.goTo.show(chatId, true);
      this.notice.setWriting(false);
      this.panel.clear();
      this.chats.mark(chatId);
      this.chrome.close();
      this.chrome.toggleSettings(false);
      this.setup.show();
      this.presets.show();
      if (window.matchMedia("(min-width: 861px)").matches) document.getElementById("rs-input").focus();
    }
    await this.load();
  }

  // Shows a chat at a character of one of its messages, with the words found there marked.
  async openAt(chatId, messageId, offset, words = []) {
    await this.open(chatId);
    return this.reading.goTo(messageId, offset, words);
  }

  // Shows a search hit, on whatever branch of its chat it is.
  async openHit(chatId, messageId, offset, words) {
    this.chrome.close();
    if (await this.openAt(chatId, messageId, offset, words)) return;
    await post(`/messages/${messageId}/select`);
    await this.load();
    await this.reading.goTo(messageId, offset, words);
  }

  // Reads the chat from the server and takes up its stream from there.
  async load() {
    const asked = ++this.asked;
    const { chatId } = this;
    if (chatId === null) {
      this.title("New chat");
      this.chrome.show("start");
      this.controls.show(null);
      this.stream.open();
      return;
    }
    let answer;
    try {
      answer = await get(`/chats/${chatId}${this.conversation.nearQuery(chatId)}`);
    } catch (problem) {
      if (asked !== this.asked) return;
      if (problem.message.includes("no longer there")) await this.open(null);
      this.composer.complain(problem);
      return;
    }
    if (asked !== this.asked) return;
    if (answer.chat.kind === "notebook") {
      await this.showNotebook(answer);
      return;
    }
    this.title(answer.chat.title || "New chat");
    this.conversation.show(chatId, answer.messages);
    this.drafts.show(answer.drafts, answer.writing);
    this.goTo.show(chatId, this.conversation.isEmpty);
    const view = this.conversation.isEmpty ? "start" : "chat";
    if (document.body.dataset.rsView !== view) this.chrome.show(view);
    this.controls.show(chatId);
    this.composer.setWriting(answer.writing.length > 0);
    this.writing = answer.writing.find((id) => this.conversation.item(id)) ?? null;
    this.elsewhere = new Set(answer.writing.filter((id) => !this.conversation.item(id)));
    this.changes = answer.changes;
    this.#showWriting();
    const last = this.conversation.lastReplyId;
    if (this.writing === null && last !== null && last !== this.panel.messageId) this.showFigures(last).catch(() => {});
    this.stream.open();
  }

  async showNotebook({ chat, writing }) {
    const { asked } = this;
    this.title(chat.title || "New notebook");
    await this.notebook.open(chat.id).catch((problem) => this.composer.complain(problem));
    if (asked !== this.asked) return;
    if (document.body.dataset.rsView !== "notebook") this.chrome.show("notebook");
    this.controls.show(null);
    this.writing = writing[0] ?? null;
    const { messageId } = this.notebook;
    if (this.writing === null && messageId !== this.panel.messageId) this.panel.showKept(messageId).catch(() => {});
    this.stream.open();
  }

  // A notebook is named after its first words, once there are some.
  async nameNotebook() {
    const { chatId } = this;
    if (chatId === null || this.notebook.chatId !== chatId) return;
    const { chat } = await get(`/chats/${chatId}`).catch(() => ({}));
    if (chat?.title && this.chatId === chatId && chat.title !== this.chatTitle) this.title(chat.title);
  }

  async newNotebook() {
    try {
      await this.setup.settled();
      const { id } = await post("/notebooks");
      await this.open(id);
      document.getElementById("rs-notebook-text").focus();
      this.chats.refresh();
    } catch (problem) {
      this.composer.complain(problem);
    }
  }

  async showFigures(messageId) {
    this.conversation.knowSummary(messageId, await this.panel.showKept(messageId));
  }

  // What this tab has already, for the stream to go on from.
  place() {
    if (this.notebook.chatId === this.chatId && this.chatId !== null) return this.notebookPlace();
    const item = this.writing ? this.conversation.item(this.writing) : null;
    if (!item?.reply) return { chat: this.chatId, changes: this.changes };
    const known = this.panel.messageId === this.writing ? this.panel.sequence : 0;
    return { chat: this.chatId, message: this.writing, block: item.reply.count, sequence: known, changes: this.changes };
  }

  notebookPlace() {
    const place = this.notebook.place();
    const known = place.message === this.panel.messageId ? this.panel.sequence : 0;
    return { chat: this.chatId, ...place, ...(place.message ? { sequence: known } : {}) };
  }

  follow(event) {
    if (event.chat !== this.chatId) return;
    this.drafts.follow(event);
    if (this.elsewhere.has(event.message)) {
      if (event.state.status === "finished") this.elsewhere.delete(event.message);
      this.#showWriting();
      return;
    }
    const isNotebook = this.notebook.chatId === this.chatId;
    const outcome = isNotebook ? this.notebook.follow(event) : this.conversation.follow(event);
    if (outcome === "unknown") {
      this.load();
      return;
    }
    if (outcome === "gap") {
      this.stream.open();
      return;
    }
    this.panel.follow(event);
    const finished = event.state.status === "finished";
    if (!finished) this.writing = event.message;
    else if (this.writing === event.message) this.writing = null;
    this.#showWriting();
    this.tabTitle(event.state);
    if (finished) this.notice.tell(event.message, this.chatTitle, `Done: ${plural(event.state.num_tokens, "token")}.`);
  }

  // Whether a reply is being written in this chat, on whatever branch.
  get isWriting() {
    return this.writing !== null || this.elsewhere.size > 0;
  }

  #showWriting() {
    const writing = this.isWriting;
    this.composer.setWriting(writing);
    this.notice.setWriting(writing);
  }

  async send(text) {
    await this.setup.settled();
    const before = this.chatId;
    const chatId = before ?? (await post("/chats")).id;
    this.conversation.stick = true;
    await post(`/chats/${chatId}/send`, { text, variants: this.drafts.number });
    if (before === null && this.chatId === null) await this.open(chatId);
    else await this.load();
    this.chats.refresh();
  }

  // Has a reply written, once the settings on the screen are with the server; `accepted()` is told before it is shown.
  async begin(path, body, accepted) {
    await this.setup.settled();
    this.composer.complain(null);
    this.conversation.stick = true;
    await post(path, body);
    accepted?.();
    await this.load();
  }

  async start(what, body) {
    await this.begin(`/chats/${this.chatId}/${what}`, body).catch((problem) => this.composer.complain(problem));
  }

  async demo() {
    try {
      const { chat } = await post("/demo");
      await this.open(chat);
      this.chats.refresh();
    } catch (problem) {
      this.composer.complain(problem);
    }
  }

  title(text) {
    this.chatTitle = text;
    document.getElementById("rs-title").textContent = text;
    document.title = `${text} – Ringside`;
  }

  // Once a second: the browser redraws its tab for every change.
  tabTitle(state) {
    if (state.status === "running" && performance.now() < this.titleDue) return;
    this.titleDue = performance.now() + 1000;
    if (state.status !== "running") document.title = `${this.chatTitle} – Ringside`;
    else document.title = `▶ ${count(state.num_tokens)} · ${rate(state.summary.tokens_per_s)} t/s – Ringside`;
  }

  // While nobody looks: whether the reply is still being written.
  async glance() {
    if (this.writing === null) return;
    const status = await get("/status").catch(() => null);
    if (!status) return;
    if (status.state !== "generating") {
      document.title = `✓ ${this.chatTitle} – Ringside`;
      this.notice.tell(this.writing, this.chatTitle, "The reply is done.");
    } else document.title = `▶ ${count(status.memory?.position_tokens ?? 0)} tokens – Ringside`;
  }

  connected(there) {
    if (there && this.lost) this.composer.complain(null);
    this.lost = !there;
    if (!there) {
      clearTimeout(this.lostTimer);
      this.lostTimer = setTimeout(() => {
        if (this.lost) this.composer.complain(new Problem("Ringside does not answer.", "It may have been closed; this page goes on as soon as it is back."));
      }, 2500);
    }
  }

  // Said instead of "does not answer", and until the stream is let in.
  refused(problem) {
    clearTimeout(this.lostTimer);
    this.composer.complain(problem);
  }
}

function chatInAddress() {
  const match = location.hash.match(/^#chat=(\d+)$/);
  return match ? Number(match[1]) : null;
}

async function notices() {
  const { notices: sentences } = await get("/status");
  const box = document.getElementById("rs-notices");
  for (const sentence of sentences) {
    if (sessionStorage.getItem(`ringside.notice.${sentence}`)) continue; // said and closed already
    const line = element("div", "notice");
    const close = iconButton("icon-button small", "close", "Close this notice");
    close.addEventListener("click", () => {
      sessionStorage.setItem(`ringside.notice.${sentence}`, "closed");
      line.remove();
    });
    line.append(sentence, close);
    box.append(line);
  }
}

function begin() {
  window.ringside = { chatId: chatInAddress() };
  const page = new Page();
  for (const name of ["settingsSent", "settingsKept", "settingsShown"]) {
    window.ringside[name] = () => page.setup[name]();
  }
  page.open(chatInAddress());
  page.chats.refresh();
  notices().catch(() => {});
  document.body.classList.add("rs-ready");
  document.dispatchEvent(new Event("ringside:up"));
}

function whenDrawn(call) {
  if (NEEDED.every((id) => document.getElementById(id))) {
    call();
    return;
  }
  const watch = new MutationObserver(() => {
    if (!NEEDED.every((id) => document.getElementById(id))) return;
    watch.disconnect();
    call();
  });
  watch.observe(document.body, { childList: true, subtree: true });
}

whenDrawn(begin);
