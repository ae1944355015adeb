// One message of the open chat: what the server told of it, and its element while it is in the page.

import { showProblem } from "./api.js";
import { button, element, textElement } from "./elements.js";
import { count, duration, plural, rate } from "./format.js";
import { icon } from "./icons.js";
import { leavePlainText } from "./plain_text.js";
import { Reply } from "./reply.js";
import { ENDINGS, waitingWords } from "./reply_words.js";
import { charsInLine } from "./section.js";

const LINE_PX = 28;
const AROUND_TEXT_PX = 90; // the footer, and the space to the next message

export class MessageItem {
  // `message` is brief where the reader is far away: enough to keep room for it.
  constructor(message) {
    this.message = message;
    this.edition = message.edition;
    this.element = null;
    this.told = null; // its text, to be drawn from
    this.editing = null;
    this.plain = null;
  }

  get isReply() {
    return this.message.role === "assistant";
  }

  get isWriting() {
    return this.message.status === "queued" || this.message.status === "running";
  }

  // Whether the page would lose something if the element were made anew.
  get isHeld() {
    if (!this.element) return false;
    const isOpen = this.reply?.isUnfolded || this.more.getAttribute("aria-expanded") === "true";
    return Boolean(this.editing || this.plain || this.isWriting || isOpen);
  }

  // Height that the message takes in a page of some width, roughly.
  roomPx(widthPx) {
    return Math.ceil(this.message.num_chars / charsInLine(widthPx)) * LINE_PX + AROUND_TEXT_PX;
  }

  // Takes what the server says now; a message far from the reader stays what was known of it before.
  tell(told) {
    if (told.brief) return;
    const { blocks, open, outline, ...message } = told;
    this.message = message;
    this.told = { blocks, open, outline };
  }

  // Makes the element from what was told last.
  draw(sectionWindow) {
    const { message } = this;
    this.element = element("article", `message ${message.role}`);
    this.element.dataset.id = message.id;
    this.element.setAttribute("aria-label", this.isReply ? "Reply" : "Your message");
    if (this.isReply) {
      this.reply = new Reply(message.id, sectionWindow);
      this.status = element("div", "reply-status");
      this.problem = element("div", "problem");
      this.problem.hidden = true;
      this.element.append(this.reply.body, this.status, this.problem);
    } else {
      this.element.append(textElement("div", "said", message.text));
    }
    this.footer = element("footer");
    this.footer.innerHTML =
      '<span class="words"></span><span class="switcher" role="group" aria-label="Variants"></span><span class="quick"></span>' +
      '<button type="button" class="mini more" aria-haspopup="menu" aria-expanded="false"></button>';
    [this.words, this.switcher, this.quick, this.more] = this.footer.children;
    this.more.append(icon("more"));
    this.more.setAttribute("aria-label", this.isReply ? "More for this reply" : "More for this message");
    this.element.append(this.footer);
  }

  // Takes the element out of the page; what was said of the message is kept, its blocks are not.
  undraw() {
    this.element?.remove();
    this.element = this.reply = this.statusShape = this.footerShape = null;
  }

  // Shows where the message stands among how many.
  number(place, total) {
    this.element.setAttribute("aria-posinset", place);
    this.element.setAttribute("aria-setsize", total);
  }

  // What a reply waits for before its first word.
  showProgress(state = this.state) {
    this.element.classList.toggle("writing", this.isWriting);
    const [words, done] = progressOf(state);
    const html = words ? `<span class="words"></span>${done === null ? "" : '<span class="bar"><span></span></span>'}` : "";
    if (this.statusShape !== html) {
      this.status.innerHTML = html;
      this.statusShape = html;
    }
    if (words) this.status.querySelector(".words").textContent = words;
    if (done !== null) this.status.querySelector(".bar span").style.width = `${(100 * done).toFixed(1)}%`;
  }

  // The line under the message: what is known of it, and `buttons` as [action, label].
  showFooter(buttons) {
    const words = this.isReply && !this.isWriting ? wordsOf(this.message) : "";
    const shape = `${words}|${buttons.map(([name]) => name)}`;
    if (this.footerShape === shape) return;
    this.footerShape = shape;
    const made = buttons.map(([name, label]) => {
      const action = button("mini", label);
      action.dataset.action = name;
      return action;
    });
    this.words.textContent = words;
    const focused = this.quick.contains(document.activeElement) ? document.activeElement.dataset.action : null;
    this.quick.replaceChildren(...made);
    if (focused) (this.quick.querySelector(`[data-action=${focused}]`) ?? this.more).focus();
    this.more.hidden = this.isWriting;
    if (this.plain && this.isWriting) leavePlainText(this);
    if (this.problem) showProblem(this.problem, this.message.error ? { message: this.message.error } : null);
    this.element.classList.toggle("writing", this.isWriting);
    if (!this.isWriting && this.status) this.status.innerHTML = this.statusShape = "";
  }
}

// The words for a state of a reply, and which share of that is done, if it can be told.
function progressOf(state) {
  if (state.cancelling && state.status !== "finished") return ["Stopping", null];
  if (state.status === "queued") return [state.queue_position ? waitingWords(state.queue_position) : "Starting", null];
  if (state.status === "loading") {
    const { progress } = state;
    return [progress ? progress.stage : "Loading the model", progress?.total ? progress.done / progress.total : null];
  }
  if (state.status === "prefill" && state.prefill) {
    const { done_tokens: done, total_tokens: total } = state.prefill;
    return [`Reading the prompt, ${count(done)} of ${plural(total, "token")}`, total ? done / total : null];
  }
  return [state.notice ?? "", null];
}

function wordsOf(message) {
  const parts = [plural(message.num_tokens, "token")];
  if (message.summary?.tokens_per_s_average) parts.push(`${rate(message.summary.tokens_per_s_average)} tokens/s`);
  if (message.summary?.elapsed_s) parts.push(duration(message.summary.elapsed_s));
  if (message.status === "cut") parts.push("cut when Ringside ended");
  else if (message.status === "cancelled" && !message.finish_reason) parts.push("cut by you");
  else parts.push(ENDINGS[message.finish_reason] ?? "");
  return parts.filter(Boolean).join(" · ");
}
