// Three Plotly charts, each one element for the life of the page: redrawn in place, at most once a second, so zoom and
// hover stay and nothing leaks, and less often where drawing takes long, since on a machine without a GPU the model
// writes with the same cores. Plotly itself is fetched after the page is up.

import { bytesTicks, linearBytesTicks } from "./bytes_axis.js";
import { bytes, duration } from "./format.js";
import { remember, remembered } from "./remembered.js";

const PERIOD_MS = 1000;
const HIDDEN_PERIOD_MS = 5000;
const SLOWEST_PERIOD_MS = 3000;
const MOST_SHARE = 1 / 30; // of the time goes into drawing: where it is slow, it is done less often

const HEIGHTS = { memory: 268, speed: 200, phrases: 112 };

const MEMORY = [
  ["device_process_bytes", "GPU memory of the process", "--rs-chart-device", "solid", 2],
  ["device_allocated_bytes", "allocated by torch", "--rs-chart-device-soft", "solid", 1.4],
  ["process_bytes", "worker, resident", "--rs-chart-process", "solid", 2],
  ["kv_held_bytes", "KV cache held", "--rs-chart-kv", "solid", 2.6],
  ["kv_full_bytes", "a full cache", "--rs-chart-full", "dash", 2.2],
];

export class Charts {
  constructor() {
    this.memory = document.getElementById("rs-chart-memory");
    this.speed = document.getElementById("rs-chart-speed");
    this.phrases = document.getElementById("rs-chart-phrases");
    this.scaleButton = document.getElementById("rs-scale");
    this.pauseButton = document.getElementById("rs-pause");
    this.kvOnlyButton = document.getElementById("rs-kv-only");
    this.scale = remembered("ringside.memory-scale", "log");
    this.kvOnly = remembered("ringside.memory-kv-only") === "yes";
    this.paused = false;
    this.revision = 0;
    this.live = null; // what is measured
    this.panel = null; // what is drawn: the same, or while paused what was measured by then
    this.due = 0;
    this.took = []; // ms, the last two drawings
    this.timer = null;
    this.showScale();
    this.scaleButton.addEventListener("click", () => {
      this.scale = this.scale === "log" ? "linear" : "log";
      remember("ringside.memory-scale", this.scale);
      this.showScale();
      this.#now();
    });
    this.kvOnlyButton.addEventListener("click", () => {
      this.kvOnly = !this.kvOnly;
      remember("ringside.memory-kv-only", this.kvOnly ? "yes" : "no");
      this.showScale();
      this.#now();
    });
    this.pauseButton.addEventListener("click", () => {
      this.paused = !this.paused;
      this.panel = this.paused && this.panel ? frozen(this.panel) : this.live;
      this.pauseButton.textContent = this.paused ? "Resume charts" : "Pause charts";
      this.#now();
    });
    for (const button of document.querySelectorAll("[data-png]")) {
      button.addEventListener("click", () => this.#download(button.dataset.png));
    }
    new ResizeObserver(() => this.panel && this.#later(150)).observe(this.memory);
    document.addEventListener("ringside:theme", () => this.#now());
    document.addEventListener("visibilitychange", () => !document.hidden && this.panel && this.#now());
  }

  // Beside the weights keys and values are small, and on a logarithmic axis a tenth of them looks like most.
  get log() {
    return this.scale === "log" && !this.kvOnly;
  }

  showScale() {
    this.scaleButton.textContent = this.log ? "log" : "linear";
    this.scaleButton.setAttribute("aria-pressed", String(this.log));
    this.scaleButton.disabled = this.kvOnly;
    this.kvOnlyButton.setAttribute("aria-pressed", String(this.kvOnly));
  }

  // Draws soon: at once where `now` says so, else when the last drawing is a second old.
  draw(panel, now = false) {
    this.live = panel;
    if (this.paused && this.panel) return;
    this.panel = panel;
    if (now) this.#now();
    else this.#later(Math.max(0, this.due - performance.now()));
  }

  #later(ms) {
    this.timer ??= setTimeout(() => this.#now(), ms);
  }

  async #now() {
    clearTimeout(this.timer);
    this.timer = null;
    if (!this.panel) return;
    this.due = performance.now() + (document.hidden ? HIDDEN_PERIOD_MS : PERIOD_MS);
    const Plotly = await plotly();
    if (this.memory.clientWidth === 0) return; // the drawer is closed
    const style = getComputedStyle(document.getElementById("rs-panel"));
    const colour = (name) => style.getPropertyValue(name).trim();
    const begun = performance.now();
    this.revision += 1;
    Plotly.react(this.memory, this.#memoryTraces(colour), this.#layout(colour, "memory"), CONFIG);
    Plotly.react(this.speed, this.#speedTraces(colour), this.#layout(colour, "speed"), CONFIG);
    Plotly.react(this.phrases, this.#phraseTraces(colour), this.#layout(colour, "phrases"), CONFIG);
    if (this.revision === 1) this.memory.on("plotly_relayout", () => this.#later(0)); // zoomed: other numbers on the axis
    const ended = performance.now();
    this.took = [this.took.at(-1) ?? 0, ended - begun];
    const rest = Math.min(Math.min(...this.took) / MOST_SHARE, SLOWEST_PERIOD_MS); // one slow drawing delays nothing
    this.due = Math.max(this.due, ended + rest);
  }

  #memoryTraces(colour) {
    const { series } = this.panel;
    const shown = MEMORY.filter(([name]) => series[name].length && (!this.kvOnly || name.startsWith("kv_")));
    return shown.map(([name, label, variable, dash, width]) => ({
      type: "scatter",
      mode: "lines",
      name: label,
      uid: name,
      x: series[name].tokens,
      y: this.log ? withoutSpecks(series[name].values) : series[name].values,
      line: { color: colour(variable), dash, width, shape: "linear" },
      text: series[name].values.map(bytes),
      hovertemplate: "%{text}<extra>%{fullData.name}</extra>",
    }));
  }

  #speedTraces(colour) {
    const { tokens_per_s: raw, tokens_per_s_smooth: smooth } = this.panel.series;
    return [
      {
        type: "scatter",
        mode: "lines",
        name: "raw",
        uid: "raw",
        x: raw.tokens,
        y: raw.values,
        line: { color: colour("--rs-chart-raw"), width: 1 },
        hovertemplate: "%{y:.1f}<extra>raw</extra>",
      },
      {
        type: "scatter",
        mode: "lines",
        name: "smoothed",
        uid: "smooth",
        x: smooth.tokens,
        y: smooth.values,
        line: { color: colour("--rs-chart-speed"), width: 2.4 },
        hovertemplate: "%{y:.1f} tokens/s<extra>smoothed</extra>",
      },
    ];
  }

  #phraseTraces(colour) {
    const { distinct_share: share } = this.panel.series;
    return [
      {
        type: "scatter",
        mode: "lines",
        name: "new phrases",
        uid: "distinct_share",
        x: share.tokens,
        y: share.values,
        line: { color: colour(this.panel.loop.hidden ? "--rs-chart-process" : "--rs-chart-full"), width: 2 },
        hovertemplate: "%{y:.0%}<extra>new phrases</extra>",
      },
    ];
  }

  #layout(colour, which) {
    const ink = colour("--rs-ink-soft");
    const grid = colour("--rs-line");
    const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, tickcolor: grid, ticks: "", automargin: true };
    const empty = Object.values(this.panel.series).every((series) => !series.length);
    return {
      datarevision: this.revision, // the arrays grow in place
      uirevision: `${this.panel.messageId}${which === "memory" ? `${this.log} ${this.kvOnly}` : ""}`,
      autosize: true,
      height: HEIGHTS[which],
      margin: { l: 8, r: 8, t: 6, b: 4 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "IBM Plex Sans, ui-sans-serif, system-ui, sans-serif", size: 11.5, color: ink },
      hovermode: "x unified",
      hoverlabel: { bgcolor: colour("--rs-raised"), bordercolor: colour("--rs-line-strong"), font: { color: colour("--rs-ink") } },
      legend: { orientation: "h", x: 0, y: -0.18, yanchor: "top", font: { size: 11 }, bgcolor: "rgba(0,0,0,0)" },
      xaxis: { ...axis, visible: !empty, rangemode: "tozero", tickformat: ",d", hoverformat: ",d", showgrid: false },
      yaxis: { ...axis, visible: !empty, rangemode: "tozero", ...this.#valueAxis(which) },
      shapes: this.#prefillMarks(colour),
      annotations: empty ? [emptyNote(colour, which)] : this.#prefillLabels(colour, which),
      showlegend: !empty && which !== "phrases",
    };
  }

  #valueAxis(which) {
    if (which === "memory") return this.log ? { type: "log", ...bytesTicks() } : { type: "linear", ...this.#linearTicks() };
    if (which === "phrases") return { range: [0, 1.04], tickformat: ".0%", nticks: 3 };
    const fast = nearlyMost(this.panel.series.tokens_per_s_smooth.values); // two tokens at once are no speed
    return { tickformat: "~g", autorangeoptions: fast ? { clipmax: 1.5 * fast } : {} };
  }

  // Of what is on screen: all of it, or what was zoomed in on.
  #linearTicks() {
    const { type, autorange, range } = this.memory.layout?.yaxis ?? {};
    if (type === "linear" && autorange === false) return linearBytesTicks(...range);
    const shown = this.#memoryTraces(() => "").flatMap(({ y }) => y);
    return linearBytesTicks(0, shown.reduce((most, value) => Math.max(most, value), 0));
  }

  // A prompt is read between two tokens: a line there, with how long it took.
  #prefillMarks(colour) {
    return this.panel.prefills.map(({ tokens }) => ({
      type: "line",
      x0: tokens,
      x1: tokens,
      y0: 0,
      y1: 1,
      yref: "paper",
      line: { color: colour("--rs-chart-prefill"), width: 1.5, dash: "dot" },
    }));
  }

  #prefillLabels(colour, which) {
    if (which !== "speed") return [];
    return this.panel.prefills.slice(-6).map(({ tokens, start_s: start, end_s: end }) => ({
      x: tokens,
      y: 1,
      yref: "paper",
      text: `prefill ${duration(end - start)}`,
      showarrow: false,
      xanchor: "left",
      yanchor: "top",
      font: { size: 10.5, color: colour("--rs-chart-prefill") },
    }));
  }

  // What the page says around a chart, for a picture that stands alone.
  #words(which) {
    const { xaxis, yaxis } = this[which].layout;
    const [title, values] = which === "memory" && this.kvOnly ? ["Keys and values over tokens", "Keys and values"] : TITLES[which];
    return {
      title: { text: title, font: { size: 17 } },
      margin: { l: 24, r: 24, t: 56, b: 24 },
      xaxis: { ...xaxis, title: { text: "Tokens of the reply", standoff: 8 } },
      yaxis: { ...yaxis, title: { text: values, standoff: 8 } },
      legend: { ...this[which].layout.legend, y: -0.16 },
    };
  }

  async #download(which) {
    const Plotly = await plotly();
    const background = getComputedStyle(document.body).getPropertyValue("--rs-page").trim() || "white";
    const chart = this[which];
    const layout = { ...chart.layout, ...this.#words(which), paper_bgcolor: background, autosize: false };
    const figure = { data: chart.data, layout };
    await Plotly.downloadImage(figure, { format: "png", width: 1200, height: 560, scale: 2, filename: `ringside-${which}` });
  }
}

// What was measured so far, which grows no more; it is still drawn in other colours, sizes and scales.
const frozen = ({ series, prefills, loop, messageId }) => ({
  series: Object.fromEntries(
    Object.entries(series).map(([name, { tokens, values, length }]) => [name, { tokens: [...tokens], values: [...values], length }]),
  ),
  prefills: [...prefills],
  loop: { hidden: loop.hidden },
  messageId,
});

const TITLES = {
  memory: ["Memory over tokens", "Memory"],
  speed: ["Tokens per second", "Tokens per second"],
  phrases: ["Repetition: share of new phrases", "New among the last 512 phrases"],
};

const CONFIG = { displayModeBar: false, responsive: false, scrollZoom: false, doubleClick: "reset" };

const EMPTY = {
  memory: "Memory appears here while a reply is written.",
  speed: "Speed appears here.",
  phrases: "Whether the text repeats itself appears here.",
};

const emptyNote = (colour, which) => ({
  x: 0.5,
  y: 0.5,
  xref: "paper",
  yref: "paper",
  showarrow: false,
  text: EMPTY[which],
  font: { size: 12, color: colour("--rs-ink-faint") },
});

// On a logarithmic axis a cache that holds one token would take most of the height: what is below a thousandth of what
// comes later is left out.
function withoutSpecks(values) {
  const least = values.reduce((most, value) => Math.max(most, value), 0) / 1000;
  return values.map((value) => (value > least ? value : null));
}

// The value that only one in fifty is above.
function nearlyMost(values) {
  const sorted = values.filter(Boolean).sort((one, other) => one - other);
  return sorted[Math.floor(0.98 * (sorted.length - 1))];
}

let loading = null;

export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/app/assets/plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}
