// Variants of a message: the switcher under it, and two or more of them side by side.

import { get, post, showProblem } from "./api.js";
import { watchCode } from "./copying.js";
import { openDialog } from "./dialog.js";
import { button, element } from "./elements.js";
import { plural } from "./format.js";
import { iconButton } from "./icons.js";
import { showGrown } from "./growing.js";

const WATCH_MS = 1000;
const NEAR_PX = 1500;

// Tells the page that the server changed the chat on screen in a way that no event of the stream says.
export function announceChange() {
  document.dispatchEvent(new Event("ringside:changed"));
}

// Brings a variant on screen, with the newest of what follows it.
export async function selectVariant(messageId) {
  await post(`/messages/${messageId}/select`);
  announceChange();
}

// Shows messages side by side, also while they are being written. Resolves with the id that was chosen, which is then
// on screen, or with null once the window is closed without a choice.
function showVariants(messageIds, { title = "Variants", current = null } = {}) {
  const { dialog, body } = openDialog(title, "variants-dialog");
  const problem = element("div", "problem");
  problem.setAttribute("role", "alert");
  problem.hidden = true;
  const columns = messageIds.map((id, place) => new Column(id, place, id === current));
  const row = element("div", "variant-columns");
  row.append(...columns.map((column) => column.element));
  body.append(problem, row);
  return new Promise((resolve) => {
    let chosen = null;
    row.addEventListener("click", async (event) => {
      const use = event.target.closest(".use-variant");
      if (!use) return;
      try {
        await selectVariant(Number(use.value));
        chosen = Number(use.value);
        dialog.close();
      } catch (error) {
        showProblem(problem, error);
      }
    });
    dialog.addEventListener("close", () => {
      columns.forEach((column) => column.stop());
      resolve(chosen);
    });
  });
}

// A column that shows a reply beside others: a heading with a note, and the text in a region of its own.
export function columnFrame(tag, className, name) {
  const column = element(tag, className);
  const note = element("span", `${className}-note`);
  const head = element("header");
  head.append(element("h3", "", name), note);
  const text = element("div", `${className}-text`);
  text.tabIndex = 0;
  text.setAttribute("role", "region");
  text.setAttribute("aria-label", name);
  column.append(head, text);
  return { element: column, head, note, text };
}

// One variant. It takes its text by the page, as far as the reader has scrolled, and goes on while it is written.
class Column {
  constructor(messageId, place, isCurrent) {
    this.id = messageId;
    this.count = 0;
    const frame = columnFrame("section", "variant", `Variant ${place + 1}`);
    this.element = frame.element;
    this.note = frame.note;
    this.text = frame.text;
    this.isCurrent = isCurrent;
    this.reply = element("div", "reply");
    this.live = element("div");
    this.reply.append(this.live);
    this.text.append(this.reply);
    const use = button("main-button use-variant", "Use this one", `Use variant ${place + 1}`);
    use.value = messageId;
    frame.head.append(use);
    watchCode(this.text, this.reply, messageId);
    this.text.addEventListener("scroll", () => this.more(), { passive: true });
    this.more();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  // Fetches the next page if the reader is near the end of what is here, one request at a time.
  async more() {
    const left = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight;
    if (this.busy || this.stopped || this.ended || left > NEAR_PX) return;
    this.busy = true;
    clearTimeout(this.timer);
    try {
      const page = await get(`/messages/${this.id}/blocks?first=${this.count}`);
      this.#take(page);
      this.ended = page.open !== null && !page.writing;
      if (!this.ended && !this.stopped) this.timer = setTimeout(() => this.more(), page.writing ? WATCH_MS : 0);
    } catch (error) {
      this.ended = true;
      this.note.textContent = error.message;
    }
    this.busy = false;
  }

  #take(page) {
    if (page.blocks.length) {
      const section = document.createElement("section");
      section.innerHTML = page.blocks.join("");
      this.live.before(section);
      this.count += page.blocks.length;
    }
    if (page.open !== null) showGrown(this.live, page.open);
    const length = `${page.writing ? "being written, " : ""}${plural(page.num_chars, "character")}`;
    this.note.textContent = this.isCurrent ? `on screen, ${length}` : length;
  }
}

// The switchers under the messages of one chat.
export class Switchers {
  // `conversation` holds the messages; `complain(problem)` shows what went wrong.
  constructor(conversation, complain) {
    this.conversation = conversation;
    this.complain = complain;
    this.variants = {};
    conversation.whenDrawn((item) => this.#dress(item));
    conversation.list.addEventListener("click", (event) => this.#clicked(event));
    conversation.list.addEventListener("keydown", (event) => this.#pressed(event));
  }

  of(messageId) {
    return this.variants[messageId] ?? [messageId];
  }

  // Takes what the server says of every message on screen.
  show(variants) {
    this.variants = variants;
    for (const item of this.conversation.drawn) this.#dress(item);
    this.#focusAgain();
  }

  compare(messageId) {
    return showVariants(this.of(messageId), { current: messageId });
  }

  // Puts the switcher under a message.
  #dress({ message: { id }, switcher: holder }) {
    const ids = this.of(id);
    const shape = ids.length > 1 ? `${ids.indexOf(id) + 1} / ${ids.length}` : "";
    if ((holder.dataset.shape ?? "") === shape) return;
    holder.dataset.shape = shape;
    holder.replaceChildren(...(shape ? switcher(id, ids, shape) : []));
  }

  async #step(messageId, by) {
    const ids = this.of(messageId);
    const next = ids[ids.indexOf(messageId) + by];
    if (next === undefined) return;
    this.conversation.stick = false; // the reader stays at this place; the end may be far away
    this.focusNext = { id: next, by };
    try {
      await selectVariant(next);
    } catch (problem) {
      this.focusNext = null;
      this.complain(problem);
    }
  }

  #clicked(event) {
    const pressed = event.target.closest(".switch-variant");
    if (pressed) this.#step(Number(pressed.closest(".message").dataset.id), Number(pressed.value));
  }

  #pressed(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !event.target.closest(".switcher")) return;
    event.preventDefault();
    this.#step(Number(event.target.closest(".message").dataset.id), by);
  }

  #focusAgain() {
    const item = this.focusNext && this.conversation.item(this.focusNext.id);
    if (!item?.element) return;
    const buttons = [...item.switcher.querySelectorAll("button:enabled")];
    const same = buttons.find((each) => Number(each.value) === this.focusNext.by) ?? buttons[0];
    this.focusNext = null;
    item.element.scrollIntoView({ block: "nearest" });
    same?.focus({ preventScroll: true });
    this.conversation.said.textContent = `Variant ${item.switcher.dataset.shape.replace("/", "of")}`;
  }
}

function switcher(id, ids, shape) {
  const place = ids.indexOf(id);
  const step = (by, drawing, label) => {
    const made = iconButton("mini switch-variant", drawing, label);
    made.value = by;
    made.disabled = ids[place + by] === undefined;
    return made;
  };
  return [step(-1, "previous", "Previous variant"), element("span", "variant-number", shape), step(1, "next", "Next variant")];
}
