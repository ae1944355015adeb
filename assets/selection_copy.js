// Copying what is selected. Browsers lay selected text out anew: they turn no-break spaces into spaces and lose the
// marks of Markdown. Here code and plain text are copied as they stand, and of several blocks each whole one as the
// Markdown it was written as, from the server, so that parts of a long reply that are not loaded are copied too. Of a
// block selected in part, what is seen is copied.

import { get } from "./api.js";
import { isWhollyIn, textIn } from "./selected_text.js";

const AS_IT_STANDS = "pre, .said, .plain, .plain-text";

export function watchCopying(conversation) {
  document.addEventListener("copy", (event) => {
    const selection = document.getSelection();
    if (selection.isCollapsed || !selection.rangeCount || event.target.closest?.("input, textarea")) return;
    const range = selection.getRangeAt(0);
    const items = [...conversation.items.values()].filter((item) => isTouched(item, range));
    if (!items.length) return;
    const around = elementOf(range.commonAncestorContainer);
    const exact = around.closest(AS_IT_STANDS);
    if (items.length === 1 && (exact || around.closest("section > *, .live > *"))) {
      event.preventDefault();
      event.clipboardData.setData("text/plain", exact ? range.toString() : selection.toString());
      if (!exact) event.clipboardData.setData("text/html", htmlOf(range));
    } else if (window.ClipboardItem && navigator.clipboard?.write) {
      event.preventDefault();
      put(textOf(conversation.chatId, items, range));
    }
  });
}

// A message that is not in the page is touched with the group that keeps its room.
function isTouched({ element, group }, range) {
  return element ? textIn(range, element).trim() : range.intersectsNode(group.element);
}

async function textOf(chatId, items, range) {
  const absent = items.filter((item) => !item.element);
  const kept = absent.length ? await textsBetween(chatId, absent[0], absent.at(-1)) : new Map();
  const parts = await Promise.all(items.map((item) => partOf(item, range, kept)));
  return parts.filter(Boolean).join("\n\n");
}

// Returns the texts of messages by id, from one to another.
async function textsBetween(chatId, { message: first }, { message: last }) {
  const { texts } = await get(`/chats/${chatId}/texts?first=${first.id}&last=${last.id}`);
  return new Map(texts);
}

function partOf(item, range, kept) {
  if (!item.element) return item.isReply ? trimmed(kept.get(item.message.id) ?? "") : (kept.get(item.message.id) ?? "");
  return item.isReply ? ofReply(item.reply, range) : said(item, range);
}

function said(item, range) {
  const element = item.element.querySelector(".said");
  if (!element) return "";
  return isWhollyIn(range, element) ? item.message.text : textIn(range, element);
}

async function ofReply(reply, range) {
  const touched = await reply.touched(range);
  if (!touched) return "";
  const [first, last] = touched;
  const firstWhole = !first.element || isWhollyIn(range, first.element);
  const lastWhole = !last.element || isWhollyIn(range, last.element);
  if (first.block === last.block) {
    return firstWhole && lastWhole ? trimmed(await reply.source(first.block, 1)) : textIn(range, reply.body);
  }
  const from = firstWhole ? first.block : first.block + 1;
  const to = lastWhole ? last.block + 1 : last.block;
  const parts = [
    firstWhole ? "" : textIn(range, first.element),
    trimmed(await reply.source(from, to - from)),
    lastWhole ? "" : textIn(range, last.element),
  ];
  return parts.filter(Boolean).join("\n\n");
}

// Without the empty lines that part blocks.
function trimmed(text) {
  return text.replace(/^([ \t]*\r?\n)+/, "").replace(/\s+$/, "");
}

function put(promise) {
  const blob = promise.then((text) => new Blob([text], { type: "text/plain" }));
  navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]).catch(() => {});
}

function elementOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
}

function htmlOf(range) {
  const holder = document.createElement("div");
  holder.append(range.cloneContents());
  return holder.innerHTML;
}
