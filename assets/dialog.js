// A window over the page: a heading, a way to close it, and whatever its topic puts inside. Escape closes it, a click
// beside it too, and the focus goes back to where it was.

import { element } from "./elements.js";
import { iconButton } from "./icons.js";

let numOpened = 0;

export function openDialog(title, className) {
  const dialog = element("dialog", `rs-dialog ${className}`);
  const heading = element("h2", "", title);
  heading.id = `rs-dialog-${(numOpened += 1)}`;
  dialog.setAttribute("aria-labelledby", heading.id);
  const close = iconButton("icon-button", "close", "Close");
  close.addEventListener("click", () => dialog.close());
  const head = element("div", "dialog-head");
  head.append(heading, close);
  const body = element("div", "dialog-body scrolls");
  dialog.append(head, body);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("keydown", (event) => event.key === "Escape" && event.stopPropagation());
  document.getElementById("rs-shell").append(dialog);
  dialog.showModal();
  return { dialog, body };
}
