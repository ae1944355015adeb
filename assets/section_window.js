// Tells parts of a very long reply when the reader comes near them and when they are far again.

const NEAR_PX = 2500;
const FAR_PX = 6000;

export class SectionWindow {
  constructor(scroller) {
    this.parts = new WeakMap(); // element -> {near, far}
    this.near = this.#observer(scroller, NEAR_PX);
    this.far = this.#observer(scroller, FAR_PX);
  }

  // `part.cameNear()` and `part.wentFar(heightPx)` are called after layout, so reading and writing there is cheap.
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
        else if (!isIntersecting) part?.wentFar(boundingClientRect.height);
      }
    };
    return new IntersectionObserver(told, { root: scroller, rootMargin: `${margin}px 0px` });
  }
}
