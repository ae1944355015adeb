// One event stream a tab. Browsers allow six connections to one address, for all tabs together, so a hidden tab gives
// its stream back and takes it up again, from where it was, once it is looked at.

const HIDDEN_GRACE_MS = 3000;
const ASLEEP_MS = 3000;
const RETRY_MS = [500, 1000, 2000, 4000, 5000];

export class Stream {
  // `place()` tells what the tab has: {chat, message, block, sequence}. `handlers` are by event name.
  constructor(place, handlers) {
    this.place = place;
    this.handlers = handlers;
    this.source = null;
    this.failures = 0;
    this.timer = null;
    document.addEventListener("visibilitychange", () => this.#lookedAt());
    window.addEventListener("pagehide", () => this.close());
  }

  open() {
    this.close();
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(this.place())) {
      if (value !== null && value !== undefined) query.set(name, value);
    }
    const source = new EventSource(`/app/stream?${query}`);
    this.source = source;
    for (const [name, handle] of Object.entries(this.handlers)) {
      if (name === "connection" || name === "asleep") continue;
      source.addEventListener(name, (event) => {
        if (this.source === source) handle(JSON.parse(event.data));
      });
    }
    source.onopen = () => {
      this.failures = 0;
      this.handlers.connection?.(true);
    };
    source.onerror = () => {
      if (this.source === source) this.#retry();
    };
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  // The browser would ask again for the place where the stream began; ask for the place where it is.
  #retry() {
    this.close();
    this.handlers.connection?.(false);
    const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)];
    this.failures += 1;
    this.timer = setTimeout(() => this.open(), wait);
  }

  #lookedAt() {
    clearTimeout(this.timer);
    if (document.hidden) {
      this.timer = setTimeout(() => document.hidden && this.#sleep(), HIDDEN_GRACE_MS);
    } else if (this.source === null) {
      this.open();
    }
  }

  // A short question now and then is enough for the tab's title.
  #sleep() {
    this.close();
    this.handlers.asleep?.();
    this.timer = setTimeout(() => this.#sleep(), ASLEEP_MS);
  }
}
