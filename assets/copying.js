// Copies text that the server still has to send. Browsers want the clipboard to be asked for during the click, so the
// text is given as a promise where that is possible.

import { getText } from "./api.js";

export async function copyText(promise, button) {
  const label = button.textContent;
  try {
    if (window.ClipboardItem && navigator.clipboard?.write) {
      const blob = promise.then((text) => new Blob([text], { type: "text/plain" }));
      await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
    } else {
      await navigator.clipboard.writeText(await promise);
    }
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
  setTimeout(() => (button.textContent = label), 1500);
}

// Lets the copy buttons of code frames and the folds of reasoning work where one message is shown.
export function watchCode(element, reply, messageId) {
  element.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.classList.contains("copy-code")) {
      const number = button.closest(".code").dataset.code;
      copyText(getText(`/messages/${messageId}/code/${number}`), button);
    } else if (button?.classList.contains("fold")) {
      button.setAttribute("aria-expanded", reply.classList.toggle("unfolded"));
    }
  });
}
