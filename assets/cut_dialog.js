// Keeps a reply up to a point: the reader puts the cursor there. The whole reply stays beside it as a variant.

import { post, showProblem } from "./api.js";
import { openDialog } from "./dialog.js";
import { placeIn } from "./edit_box.js";
import { count } from "./format.js";

const CONTEXT_WORDS = [12, 6, 3, 1];

// Asks where to cut; `end` is the place in the text to begin with. Resolves with the new message's id, or null.
export function askWhereToCut(messageId, text, end) {
  const { dialog, body } = openDialog("Keep the beginning", "cut-dialog");
  body.innerHTML =
    "<p>Put the cursor where the reply is to end. The whole one stays beside it, as another variant.</p>" +
    '<textarea dir="auto" aria-readonly="true" spellcheck="false" aria-label="The reply; what is before the cursor is kept"></textarea>' +
    '<div class="problem" role="alert" hidden></div>' +
    '<div class="dialog-foot"><span role="status"></span><button type="button" class="main-button">Keep up to the cursor</button></div>';
  const [area, problem, words, keep] = ["textarea", ".problem", "[role=status]", ".main-button"].map((name) =>
    body.querySelector(name),
  );
  area.value = text;
  area.addEventListener("beforeinput", (event) => event.preventDefault()); // "readonly" would take the cursor away
  const kept = () => codePoints(text.slice(0, placeIn(text, area.selectionEnd)));
  const total = codePoints(text);
  let shownAt = null;
  const showPlace = () => {
    if (area.selectionEnd === shownAt) return;
    shownAt = area.selectionEnd;
    const tail = area.value.slice(Math.max(0, shownAt - 40), shownAt).replace(/\s+/g, " ");
    words.textContent = `Keeps ${count(kept())} of ${count(total)} characters, to “…${tail}”`;
    keep.disabled = shownAt === 0;
  };
  for (const name of ["select", "keyup", "click", "focus"]) area.addEventListener(name, showPlace);
  area.focus();
  const cursor = text.slice(0, end).replaceAll("\r\n", "\n").length;
  area.setSelectionRange(cursor, cursor);
  scrollToCursor(area, cursor);
  showPlace();
  return new Promise((resolve) => {
    let cut = null;
    keep.addEventListener("click", async () => {
      try {
        cut = (await post(`/messages/${messageId}/cut`, { num_chars: kept() })).message;
        dialog.close();
      } catch (error) {
        showProblem(problem, error);
      }
    });
    dialog.addEventListener("close", () => resolve(cut));
  });
}

// Characters as the server counts them.
function codePoints(text) {
  let num = 0;
  for (const _ of text) num += 1;
  return num;
}

// A text field scrolls to its cursor only when typed in.
function scrollToCursor(area, cursor) {
  const share = cursor / Math.max(1, area.value.length);
  area.scrollTop = Math.max(0, share * area.scrollHeight - area.clientHeight / 2);
}

// Finds the end of a selection in the text that a reply was made from: the words before it are looked up there, and of
// several places the one about as far into the text is taken. Markup makes this a guess; the reader confirms it.
export function placeOfSelection(text, shown, range) {
  const before = document.createRange();
  before.selectNodeContents(shown);
  before.setEnd(range.endContainer, range.endOffset);
  const seen = before.toString();
  const guess = (seen.length / Math.max(1, shown.textContent.length)) * text.length;
  const words = seen.slice(-400).match(/[\p{L}\p{N}]+/gu) ?? [];
  for (const length of CONTEXT_WORDS) {
    const last = words.slice(-length);
    if (last.length === 0) break;
    const places = [...text.matchAll(new RegExp(last.join("[^\\p{L}\\p{N}]+"), "gu"))];
    if (places.length === 0) continue;
    const ends = places.map((match) => match.index + match[0].length);
    return ends.reduce((best, end) => (Math.abs(end - guess) < Math.abs(best - guess) ? end : best));
  }
  return Math.round(guess);
}
