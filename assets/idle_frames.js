// Gradio's loading indicator goes on asking for frames once it has left the page (seen in 6.31): sixty a second for as
// long as the tab is open, each of them a chance to draw. It takes `requestAnimationFrame` once, when it is loaded; what
// it takes here is the browser's own until the page is up, and comes once a second from then on. Everything else, ours
// included, asks the browser. A classic script in the head, so that it runs before any module does.

{
  const ask = window.requestAnimationFrame.bind(window);
  const RARELY_MS = 1000;
  let up = false;
  window.requestAnimationFrame = (draw) => {
    if (!up) return ask(draw);
    setTimeout(() => ask(draw), RARELY_MS);
    return 0; // no number of a frame: cancelling it must not cancel another
  };
  document.addEventListener(
    "ringside:up",
    () => {
      up = true;
      window.requestAnimationFrame = ask;
    },
    { once: true },
  );
}
