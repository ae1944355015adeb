// A reply as the characters it consists of, in place of the formatted text.

const LINES_A_PIECE = 200;
const CHARS_A_PIECE = 20000;

// Shows the text, or the formatted reply again if it is shown already.
export async function togglePlainText(item) {
  if (item.plain) {
    leavePlainText(item);
    return;
  }
  const text = await item.reply.text();
  if (item.plain) return;
  const plain = document.createElement("div");
  plain.className = "plain-text";
  plain.append(...pieces(text));
  item.reply.body.hidden = true;
  item.reply.body.after(plain);
  item.plain = plain;
}

export function leavePlainText(item) {
  item.plain?.remove();
  item.plain = null;
  item.reply.body.hidden = false;
}

// In pieces, so that the browser lays out only those near the screen. Each ends where a line does, if lines are short.
function* pieces(text) {
  let start = 0;
  while (start < text.length) {
    let end = start;
    for (let lines = 0; lines < LINES_A_PIECE && end < text.length && end - start < CHARS_A_PIECE; lines += 1) {
      const next = text.indexOf("\n", end);
      end = next === -1 ? text.length : next + 1;
    }
    const piece = document.createElement("div");
    piece.textContent = text.slice(start, end);
    start = end;
    yield piece;
  }
}
