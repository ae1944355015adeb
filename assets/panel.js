// The live panel: big numbers as plain text at every event, three charts redrawn once a second.

import { get } from "./api.js";
import { Charts } from "./charts.js";
import { bytes, count, duration, plural, rate } from "./format.js";
import { Series } from "./series.js";

export const TRACES = [
  "tokens_per_s",
  "tokens_per_s_smooth",
  "process_bytes",
  "device_process_bytes",
  "device_allocated_bytes",
  "kv_held_bytes",
  "kv_allocated_bytes",
  "kv_full_bytes",
  "distinct_share",
];

export class Panel {
  constructor() {
    this.charts = new Charts();
    this.messageId = null;
    this.sequence = 0;
    this.series = emptySeries();
    this.prefills = [];
    this.numbers = new Map([...document.querySelectorAll("[data-number]")].map((each) => [each.dataset.number, each]));
    this.subs = new Map([...document.querySelectorAll("[data-sub]")].map((each) => [each.dataset.sub, each]));
    this.bar = document.getElementById("rs-window-bar");
    this.saving = document.getElementById("rs-saving");
    this.loop = document.getElementById("rs-loop");
    this.snapshots = document.getElementById("rs-snapshots");
    this.csv = document.getElementById("rs-csv");
  }

  clear() {
    this.messageId = null;
    this.sequence = 0;
    this.series = emptySeries();
    this.prefills = [];
    this.csv.hidden = true;
    for (const each of [...this.numbers.values(), ...this.subs.values()]) each.textContent = "";
    for (const name of ["tokens", "rate", "first", "window", "kv", "memory"]) this.#put(name, "–");
    this.bar.style.width = "0";
    this.saving.textContent = "";
    this.snapshots.textContent = "";
    this.loop.hidden = true;
    this.charts.draw(this, true);
  }

  // Shows what is kept with a reply; resolves to its summary.
  async showKept(messageId) {
    this.messageId = messageId;
    this.sequence = 0;
    const { metrics } = await get(`/messages/${messageId}/metrics`);
    if (this.messageId !== messageId) return undefined;
    if (metrics) this.#takeAll(metrics);
    else this.clear();
    return metrics?.summary;
  }

  // Takes one event of the stream.
  follow(event) {
    if (event.message !== this.messageId) {
      if (event.state.status === "queued") return; // another reply is still on show
      this.messageId = event.message;
      this.sequence = 0;
      this.series = emptySeries();
      this.prefills = [];
    }
    if (event.metrics) this.#takeAll(event.metrics, true);
    for (const [tokens, time, ...values] of event.samples ?? []) {
      TRACES.forEach((name, at) => this.series[name].add(tokens, time, values[at]));
    }
    if (event.sequence !== undefined) this.sequence = event.sequence;
    this.#summary(event.state.summary);
    const { status } = event.state;
    if (status !== this.status && status === "running") this.#readPrefills();
    this.status = status;
    if (status === "finished" && !event.metrics) this.showKept(event.message).catch(() => {});
    this.charts.draw(this, status === "finished");
  }

  // How long the prompt took is known once it has been read.
  async #readPrefills() {
    const { messageId } = this;
    const { metrics } = await get(`/messages/${messageId}/metrics`).catch(() => ({}));
    if (metrics && this.messageId === messageId) this.prefills = metrics.prefills;
  }

  #takeAll(metrics, live = false) {
    this.series = Object.fromEntries(TRACES.map((name) => [name, new Series(metrics.traces[name])]));
    this.prefills = metrics.prefills;
    this.sequence = metrics.sequence;
    this.#summary(metrics.summary);
    this.charts.draw(this, !live);
  }

  #summary(summary) {
    this.#put("tokens", count(summary.num_tokens), promptTokens(summary));
    this.#put("rate", rate(summary.tokens_per_s), average(summary));
    this.#put("first", duration(summary.time_to_first_token_s), prefillRate(summary));
    const { number, sub, share } = windowFill(summary);
    this.#put("window", number, sub);
    this.bar.style.width = `${100 * share}%`;
    this.#put("kv", bytes(summary.kv_held_bytes || null), fullCache(summary));
    const onDevice = summary.device_process_bytes ?? summary.device_allocated_bytes;
    if (onDevice !== null && onDevice !== undefined) this.#put("memory", bytes(onDevice), `GPU; RAM ${bytes(summary.process_bytes)}`);
    else this.#put("memory", bytes(summary.process_bytes || null), summary.process_peak_bytes ? `peak ${bytes(summary.process_peak_bytes)}` : "");
    this.#put("elapsed", summary.elapsed_s ? duration(summary.elapsed_s) : "");
    this.saving.textContent = saving(summary);
    this.snapshots.textContent = snapshots(summary);
    this.loop.hidden = !summary.loop_tokens;
    if (summary.loop_tokens) this.loop.textContent = looped(summary);
    this.csv.hidden = false;
    this.csv.href = `/app/messages/${this.messageId}/metrics.csv`;
  }

  #put(name, text, sub = null) {
    const number = this.numbers.get(name);
    if (number.textContent !== text) number.textContent = text;
    const below = this.subs.get(name);
    if (below && sub !== null && below.textContent !== sub) below.textContent = sub;
  }
}

const emptySeries = () => Object.fromEntries(TRACES.map((name) => [name, new Series()]));

// Of W tokens behind the sinks how many are there; unknown until a model has read something.
export function windowFill({ position_tokens: position, window_tokens: capacity, window_filled_tokens: filled, ...rest }) {
  if (!position) return { number: "–", sub: "", share: 0 };
  if (!capacity) return { number: count(position), sub: "all of them", share: 1 };
  const window = rest.window || capacity; // 0 in figures kept by earlier versions
  const asked = rest.asked_window && rest.asked_window !== window ? `, ${count(rest.asked_window)} asked` : "";
  const seen = Math.min(filled, window);
  return { number: count(seen), sub: `of ${count(window)} tokens${asked}`, share: seen / window };
}

const average = (summary) => (summary.tokens_per_s_average ? `average ${rate(summary.tokens_per_s_average)}` : "");

function promptTokens({ prompt_tokens: all, reused_tokens: reused }) {
  if (!all) return "";
  return reused ? `prompt ${count(all)}, ${count(reused)} of it reused` : `prompt ${count(all)}`;
}

function prefillRate(summary) {
  if (!summary.prompt_tokens_per_s) return "";
  return `prompt at ${rate(summary.prompt_tokens_per_s)}/s`;
}

// Of variants that are written together the cache is that of all of them, as is the memory.
function fullCache({ kv_full_bytes: full, num_rows: rows }) {
  if (!full) return "";
  return rows > 1 ? `of ${rows} variants` : `full cache ${bytes(full)}`;
}

function saving({ kv_held_bytes: held, kv_full_bytes: full }) {
  if (!held || full < 1.2 * held) return "";
  const times = full / held;
  return `Keeping everything would take ${times >= 10 ? count(times) : times.toFixed(1)} times the cache by now.`;
}

const snapshots = ({ snapshot_bytes: held }) => (held ? `Saved states for regenerate and edit hold ${bytes(held)}.` : "");

function looped({ loop_tokens: period }) {
  return `It goes round in circles: the same ${plural(period, "token")} over and over.`;
}
