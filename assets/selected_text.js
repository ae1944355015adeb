// The part of a range that is inside an element, as text: every character as it stands in the document.

export function textIn(range, element) {
  return within(range, element)?.toString() ?? "";
}

export function isWhollyIn(range, element) {
  const whole = document.createRange();
  whole.selectNodeContents(element);
  const part = within(range, element);
  return part !== null && part.toString().trim() === whole.toString().trim();
}

function within(range, element) {
  if (!range.intersectsNode(element)) return null;
  const part = document.createRange();
  part.selectNodeContents(element);
  if (part.compareBoundaryPoints(Range.START_TO_START, range) < 0) part.setStart(range.startContainer, range.startOffset);
  if (part.compareBoundaryPoints(Range.END_TO_END, range) > 0) part.setEnd(range.endContainer, range.endOffset);
  return part;
}
