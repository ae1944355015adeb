// Parts of something very long (sections of a reply, groups of messages), of which only those near the reader are in
// the page: the parts hear when the reader comes near and is far again, and a loader fetches those that are missing.

const NEAR_PX = 2500;
const FAR_PX = 6000;
const PARTS_AT_ONCE = 4;
const RETRY_MS = 1500;

export class SectionWindow {
  constructor(scroller) {
    this.parts = new WeakMap(); // element -> {cameNear, wentFar}
    this.near = this.#observer(scroller, NEAR_PX);
    this.far = this.#observer(scroller, FAR_PX);
  }

  // `part.cameNear()` and `part.wentFar(heightPx)` are called after layout, so reading and writing there is cheap. A
  // part with the focus, or where the reader's selection begins or ends, does not hear that it is far.
  watch(element, part) {
    this.parts.set(element, part);
    for (const observer of [this.near, this.far]) {
      observer.unobserve(element);
      observer.observe(element);
    }
  }

  #observer(scroller, margin) {
    const told = (entries) => {
      for (const { target, isIntersecting, boundingClientRect } of entries) {
        const part = this.parts.get(target);
        if (margin === NEAR_PX) part?.cameNear(isIntersecting);
        else if (!isIntersecting && !isInUse(target)) part?.wentFar(boundingClientRect.height);
      }
    };
    return new IntersectionObserver(told, { root: scroller, rootMargin: `${margin}px 0px` });
  }
}

// Fills parts {near, loaded} that are near and empty, a few that follow each other at a time.
export class PartLoader {
  // `parts()` returns those in the page, in order; `fetch(parts)` fills some that follow each other.
  constructor(parts, fetch) {
    this.parts = parts;
    this.fetch = fetch;
    this.busy = false;
  }

  // Goes on until nothing near is missing; what the reader has passed meanwhile is left out.
  async begin() {
    if (this.busy) return;
    this.busy = true;
    for (let batch; (batch = this.#nearMissing()).length > 0; ) {
      try {
        await this.fetch(batch);
        await new Promise(requestAnimationFrame);
      } catch {
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS)); // the page says elsewhere that nobody answers
      }
    }
    this.busy = false;
  }

  #nearMissing() {
    const parts = this.parts();
    const isMissing = (part) => part.near && !part.loaded;
    const first = parts.findIndex(isMissing);
    if (first < 0) return [];
    const run = parts.slice(first, first + PARTS_AT_ONCE);
    const end = run.findIndex((part) => !isMissing(part));
    return end < 0 ? run : run.slice(0, end);
  }
}

function isInUse(element) {
  const { anchorNode, focusNode, isCollapsed } = document.getSelection();
  const used = [document.activeElement, ...(isCollapsed ? [] : [anchorNode, focusNode])];
  return used.some((node) => node && element.contains(node));
}
