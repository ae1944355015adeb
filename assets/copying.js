// Copies text that the server still has to send. Browsers want the clipboard to be asked for during the click, so the
// text is given as a promise where that is possible.

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
