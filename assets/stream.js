// One event stream a tab. Browsers allow six connections to one address, for all tabs together, so a hidden tab gives
// its stream back and takes it up again, from where it was, once it is looked at.

import { Problem } from "./api.js";

const NO_EVENTS = new Set(["connection", "asleep", "refused"]);
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
    const url = `/app/stream?${query}`;
    const source = new EventSource(url);
    this.source = source;
    for (const [name, handle] of Object.entries(this.handlers)) {
      if (NO_EVENTS.has(name)) continue;
      source.addEventListener(name, (event) => {
        if (this.source === source) handle(JSON.parse(event.data));
      });
    }
    source.onopen = () => {
      this.failures = 0;
      this.handlers.connection?.(true);
    };
    source.onerror = () => {
      if (this.source === source) this.#retry(source.readyState === EventSource.CLOSED ? url : null);
    };
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  // The browser would ask again for the place where the stream began; ask for the place where it is.
  #retry(refused) {
    this.close();
    this.handlers.connection?.(false);
    if (refused !== null) this.#tellWhy(refused);
    const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)];
    this.failures += 1;
    this.timer = setTimeout(() => this.open(), wait);
  }

  // A stream that is refused, as one too many is, does not tell the page why; the same question asked as any other does.
  async #tellWhy(url) {
    const asking = new AbortController();
    try {
      const answer = await fetch(url, { signal: asking.signal });
      if (answer.status === 401) location.assign("/app/login");
      const said = answer.ok ? {} : await answer.json();
      if (this.source === null && said.message) this.handlers.refused?.(new Problem(said.message, said.hint));
    } catch {
      // it does not answer at all, which the page says by itself
    } finally {
      asking.abort();
    }
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
