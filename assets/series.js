// One trace, bounded: when it has more points than fit, pairs of neighbours give way to their least and greatest, so a
// spike of a single sample stays and a run of ten hours costs what a minute does.

const MAX_POINTS = 2000;

export class Series {
  constructor(columns = [[], [], []]) {
    [this.tokens, this.times, this.values] = columns.map((column) => [...column]);
    while (this.tokens.length > MAX_POINTS) this.#halve();
  }

  get length() {
    return this.tokens.length;
  }

  add(tokens, time, value) {
    if (value === null) return;
    this.tokens.push(tokens);
    this.times.push(time);
    this.values.push(value);
    if (this.tokens.length > MAX_POINTS) this.#halve();
  }

  // Four points become two: the least and the greatest, in the order they came. The last few stay as they are.
  #halve() {
    const keep = [];
    const whole = this.tokens.length - (this.tokens.length % 4);
    for (let at = 0; at < whole; at += 4) {
      let low = at;
      let high = at;
      for (let each = at + 1; each < at + 4; each += 1) {
        if (this.values[each] < this.values[low]) low = each;
        if (this.values[each] >= this.values[high]) high = each;
      }
      if (low === high) high = at + 3;
      keep.push(Math.min(low, high), Math.max(low, high));
    }
    for (let at = whole; at < this.tokens.length; at += 1) keep.push(at);
    for (const name of ["tokens", "times", "values"]) this[name] = keep.map((at) => this[name][at]);
  }
}
