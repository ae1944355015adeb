// The exact prompt of a reply: every token with its id, a page at a time, to be copied as text or as ids.

import { get, getText } from "./api.js";
import { copyText } from "./copying.js";
import { openDialog } from "./dialog.js";
import { button, element } from "./elements.js";
import { count, plural } from "./format.js";

const PAGE_TOKENS = 500;
const VISIBLE = { " ": "·", "\n": "↵", "\t": "⇥", "\r": "␍" };

// Shows the prompt of a message; rejects with a Problem where it is not kept.
export async function showPrompt(messageId) {
  const path = `/messages/${messageId}/prompt`;
  const first = await get(`${path}?count=${PAGE_TOKENS}`);
  const { dialog, body } = openDialog("Exact prompt", "prompt-dialog");
  const said = element("p", "", `${plural(first.num_tokens, "token")}: what the model was given when it last began to write here.`);
  const list = element("ol", "prompt-tokens");
  list.tabIndex = 0;
  list.setAttribute("aria-label", "Tokens");
  body.append(said, list, foot(path));
  const pages = new Pages(list, body, first.num_tokens);
  const turn = async (at) => {
    const start = pages.clamped(at);
    if (start !== pages.start) pages.show(await get(`${path}?first=${start}&count=${PAGE_TOKENS}`));
  };
  dialog.addEventListener("keydown", (event) => {
    const way = { PageDown: 1, PageUp: -1 }[event.key];
    if (!way || event.altKey || event.ctrlKey) return;
    event.preventDefault();
    turn(pages.start + way * PAGE_TOKENS);
  });
  for (const turner of pages.turns) {
    turner.addEventListener("click", () => turn(pages.start + Number(turner.dataset.turn) * PAGE_TOKENS));
  }
  pages.show(first);
  list.focus();
}

class Pages {
  constructor(list, body, numTokens) {
    this.list = list;
    this.words = body.querySelector("[role=status]");
    this.turns = [...body.querySelectorAll("[data-turn]")];
    this.numTokens = numTokens;
    this.start = -1;
  }

  clamped(at) {
    const last = Math.floor(Math.max(0, this.numTokens - 1) / PAGE_TOKENS) * PAGE_TOKENS;
    return Math.min(Math.max(0, at), last);
  }

  show({ first, tokens }) {
    this.start = first;
    this.list.start = first + 1;
    this.list.replaceChildren(...tokens.map(([id, piece]) => token(id, piece)));
    this.list.scrollTop = 0;
    this.words.textContent = `Tokens ${count(first + 1)} to ${count(first + tokens.length)} of ${count(this.numTokens)}`;
    for (const turner of this.turns) {
      turner.disabled = this.clamped(first + Number(turner.dataset.turn) * PAGE_TOKENS) === first;
      turner.hidden = this.numTokens <= PAGE_TOKENS;
    }
  }
}

function token(id, piece) {
  const item = element("li");
  const text = [...piece].map((letter) => VISIBLE[letter] ?? letter).join("") || "–";
  item.append(element("span", "token-piece", text), element("span", "token-id", id));
  return item;
}

function foot(path) {
  const row = element("div", "dialog-foot");
  const words = element("span");
  words.setAttribute("role", "status");
  const tools = element("span", "prompt-tools");
  for (const [turn, label] of [[-1, "Earlier"], [1, "Later"]]) {
    const turner = button("mini", label);
    turner.dataset.turn = turn;
    tools.append(turner);
  }
  for (const [what, label] of [["text", "Copy text"], ["ids", "Copy ids"]]) {
    const copier = button("mini", label);
    copier.addEventListener("click", () => copyText(getText(`${path}/${what}`), copier));
    tools.append(copier);
  }
  row.append(words, tools);
  return row;
}
