// Marks of found words, drawn over the text: the text's own elements stay as they are, so copying is not touched.

const ALL = "rs-hits";
const ONE = "rs-hit";
const ENDS = "(?![\\p{M}\\u1160-\\u11ff\\ud7b0-\\ud7ff])";

// Marks every occurrence of the words in an element, the `nth` one strongly. Returns that one's range, or null.
export function markWords(element, words, nth = 0) {
  const ranges = occurrences(element, words);
  if (!ranges.length) return null;
  const one = ranges[Math.min(nth, ranges.length - 1)];
  if (window.Highlight && CSS.highlights) {
    CSS.highlights.set(ALL, new Highlight(...ranges));
    const strong = new Highlight(one);
    strong.priority = 1;
    CSS.highlights.set(ONE, strong);
  }
  return one;
}

export function unmark() {
  CSS.highlights?.delete(ALL);
  CSS.highlights?.delete(ONE);
}

export function numOccurrences(text, words) {
  return [...text.matchAll(patternOf(words))].length;
}

// Where the words stand, in any case, also across **bold** and the like.
function occurrences(element, words) {
  const nodes = [];
  const starts = [];
  let text = "";
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    if (walker.currentNode.parentElement.closest("button")) continue;
    starts.push(text.length);
    nodes.push(walker.currentNode);
    text += walker.currentNode.data;
  }
  const ranges = [];
  for (const match of text.matchAll(patternOf(words))) {
    const range = document.createRange();
    place(range, "setStart", match.index);
    place(range, "setEnd", match.index + match[0].length);
    ranges.push(range);
  }
  return ranges;

  function place(range, set, at) {
    let number = starts.findLastIndex((start) => start <= at);
    if (set === "setEnd" && number > 0 && starts[number] === at) number -= 1; // the end of a node, not the next's start
    range[set](nodes[number], at - starts[number]);
  }
}

// The words in a row, as they are shown: without marks of Markdown, the longest first, and whole characters only: no
// letter without its accent, no part of a Korean syllable.
function patternOf(phrases) {
  const shown = phrases.map((phrase) => phrase.replace(/[*_`~]+/g, "").trim() || phrase.trim()).filter(Boolean);
  const longestFirst = shown.sort((one, other) => other.length - one.length);
  const each = longestFirst.map((phrase) => phrase.split(/\s+/).map(escaped).join("\\s+"));
  return new RegExp(each.length ? `(?:${each.join("|")})${ENDS}` : "(?!)", "giu");
}

function escaped(word) {
  return word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
