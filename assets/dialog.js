// A window over the page: a heading, a way to close it, and whatever its topic puts inside. Escape closes it, a click
// beside it too, and the focus goes back to where it was.

let numOpened = 0;

export function openDialog(title, className) {
  const dialog = document.createElement("dialog");
  dialog.className = `rs-dialog ${className}`;
  const heading = document.createElement("h2");
  heading.id = `rs-dialog-${(numOpened += 1)}`;
  heading.textContent = title;
  dialog.setAttribute("aria-labelledby", heading.id);
  const close = document.createElement("button");
  close.type = "button";
  close.className = "icon-button";
  close.setAttribute("aria-label", "Close");
  close.textContent = "✕";
  close.addEventListener("click", () => dialog.close());
  const head = document.createElement("div");
  head.className = "dialog-head";
  head.append(heading, close);
  const body = document.createElement("div");
  body.className = "dialog-body";
  dialog.append(head, body);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("keydown", (event) => event.key === "Escape" && event.stopPropagation());
  document.getElementById("rs-shell").append(dialog);
  dialog.showModal();
  return { dialog, body };
}
