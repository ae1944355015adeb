// Shows HTML that mostly grows at its end, by changing only what differs from what is shown: a text node is lengthened
// where it stands, so what a reader has selected in it stays selected.

// Makes an element show `html`, which the server has sanitised.
export function showGrown(element, html) {
  const wanted = document.createElement("template");
  wanted.innerHTML = html;
  bringTo(element, wanted.content);
}

function bringTo(shown, wanted) {
  let here = shown.firstChild;
  for (const there of [...wanted.childNodes]) {
    const next = here?.nextSibling ?? null;
    if (!here) shown.append(there);
    else if (!grown(here, there)) here.replaceWith(there);
    here = next;
  }
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

// Brings a node to what another one is, in place; false where that cannot be.
function grown(here, there) {
  if (here.isEqualNode(there)) return true;
  if (here.nodeType === Node.TEXT_NODE && there.nodeType === Node.TEXT_NODE) {
    if (there.data.startsWith(here.data)) here.appendData(there.data.slice(here.data.length));
    else here.data = there.data;
    return true;
  }
  if (here.nodeType !== Node.ELEMENT_NODE || !here.cloneNode(false).isEqualNode(there.cloneNode(false))) return false;
  bringTo(here, there);
  return true;
}
