// The estimate card: where memory will go, and a slider over windows with the cache's bytes over the text's length.
// Every window was worked out by the server at once; sliding only chooses among its numbers.

import { get, post } from "./api.js";
import { bytesTicks } from "./bytes_axis.js";
import { plotly } from "./charts.js";
import { element } from "./elements.js";
import { bytes, count } from "./format.js";
import { frame, tableElement } from "./proof_figures.js";

const LIBRARIES_AFTER_MS = 1500;
const TRACES = {
  ring: ["--rs-chart-kv", "solid", 3],
  "as trained": ["--rs-chart-device", "dot", 2],
  full: ["--rs-chart-full", "dash", 2.2],
};

export class EstimateCard {
  // `chatId()` tells whose settings; `used()` hears that they were changed here.
  constructor(chatId, used) {
    this.chatId = chatId;
    this.used = used;
    this.asked = 0;
    this.card = null;
    this.#build();
    document.addEventListener("ringside:theme", () => this.card && this.#plot());
    new ResizeObserver(() => this.#fit()).observe(this.chart); // the card moves between the start page and the drawer
  }

  // Asks for the card anew; resolves to whether there is one.
  async refresh() {
    const asked = ++this.asked;
    clearTimeout(this.librariesTimer);
    const card = await this.#get(false);
    if (asked !== this.asked) return this.card !== null;
    this.#show(card);
    if (card && card.outlook.runtime_bytes === null) {
      this.librariesTimer = setTimeout(async () => {
        const measured = await this.#get(true).catch(() => null);
        if (measured && asked === this.asked) this.#show(measured, this.window.window);
      }, LIBRARIES_AFTER_MS);
    }
    return card !== null;
  }

  hide() {
    this.asked += 1;
    this.#show(null);
  }

  async #get(libraries) {
    const query = new URLSearchParams({ libraries });
    if (this.chatId()) query.set("chat", this.chatId());
    return (await get(`/estimate?${query}`)).card;
  }

  #build() {
    this.root = element("div", "estimate");
    this.root.hidden = true;
    this.facts = element("p", "estimate-facts");
    this.slider = element("input");
    Object.assign(this.slider, { type: "range", id: "rs-estimate-window", min: 0, step: 1 });
    this.slider.addEventListener("input", () => this.#choose(this.card.windows[this.slider.valueAsNumber]));
    this.chosen = element("output");
    this.chosen.htmlFor = this.slider.id;
    this.use = element("button", "mini", "Use this window");
    this.use.type = "button";
    this.use.addEventListener("click", () => this.#use());
    const label = element("label", "", "Window");
    label.htmlFor = this.slider.id;
    const row = element("div", "estimate-slider");
    row.append(label, this.slider, this.chosen, this.use);
    this.chart = element("div", "estimate-chart");
    this.chart.setAttribute("role", "img");
    this.ends = element("p", "estimate-note");
    this.advice = element("ul", "notes");
    this.tables = element("div", "estimate-tables");
    const more = element("details");
    more.append(element("summary", "", "Where the memory goes, and the ring by window"), this.tables);
    this.root.append(this.facts, row, this.chart, this.ends, this.advice, more);
  }

  #show(card, window = card?.window) {
    this.card = card;
    this.root.hidden = !card;
    if (!card) return;
    this.slider.max = card.windows.length - 1;
    const place = Math.max(0, card.windows.findIndex((each) => each.window === window));
    this.slider.value = place;
    this.#choose(card.windows[place]);
  }

  #choose(window) {
    this.window = window;
    const { outlook, window: inUse } = this.card;
    const words = `${count(window.in_force)} tokens${asked(window)}`;
    this.slider.setAttribute("aria-valuetext", words);
    this.chosen.textContent = words;
    this.use.disabled = window.window === inUse;
    const known = outlook.runtime_bytes !== null;
    this.facts.replaceChildren(
      fact("Weights", bytes(outlook.weights_bytes)),
      fact(`Ring, window ${count(window.in_force)}`, bytes(window.kv_bytes)),
      fact(known ? "Process in all" : "In all, without libraries", bytes(window.total_bytes)),
      fact("Free memory", outlook.free_bytes === null ? "unknown" : bytes(outlook.free_bytes)),
    );
    if (window.fits === false) this.facts.append(fact("Fits", "no"));
    this.ends.textContent = this.#ends();
    this.advice.replaceChildren(...window.sentences.map((sentence) => element("li", "", sentence)));
    this.tables.replaceChildren(...this.#tables());
    this.#plot();
  }

  #ends() {
    const { outlook } = this.card;
    const even = `A cache that keeps everything is as large as the ring at ${count(this.window.even_at_tokens)} tokens`;
    if (outlook.full_ends_at_tokens === null) return `${even}.`;
    return `${even}, and exceeds the free memory at ${count(outlook.full_ends_at_tokens)}.`;
  }

  #tables() {
    const { outlook, windows } = this.card;
    const parts = [
      ["Weights as held", bytes(outlook.weights_bytes)],
      [`Keys and values, ring, window ${count(this.window.in_force)}`, bytes(this.window.kv_bytes)],
      ["Tokenizer, scratch space, saved turn", bytes(outlook.buffers_bytes)],
      ["Libraries", outlook.runtime_bytes === null ? "being measured" : bytes(outlook.runtime_bytes)],
    ];
    const kinds = outlook.kinds.map((kind) => [kind.name, count(kind.num_layers), bytes(kind.bytes_per_token)]);
    const rows = windows
      .filter((each) => each.in_table)
      .map((each) => [
        `${count(each.in_force)}${asked(each)}${each.window === this.card.window ? " (now)" : ""}`,
        bytes(each.kv_bytes),
        bytes(each.total_bytes),
        each.fits === null ? "?" : each.fits ? "yes" : "no",
        count(each.even_at_tokens),
      ]);
    return [
      { title: "Memory of the process", columns: ["", "Bytes"], rows: parts },
      { title: "Keys and values of one token", columns: ["Layers", "Number", "A token"], rows: kinds },
      {
        title: "The ring by window",
        columns: ["Window", "Keys and values", "Process", "Fits", "Full is even at"],
        rows,
      },
    ].map(tableElement);
  }

  async #plot() {
    const Plotly = await plotly();
    if (!this.chart.clientWidth) return; // not on screen; drawn when it is refreshed
    const { axis, layout } = frame();
    const { tokens, full } = this.card;
    const curves = [...this.window.curves, full];
    const free = this.card.outlook.free_bytes;
    const values = curves.flatMap(({ num_bytes: sizes }) => sizes);
    const limits = [Math.log10(Math.min(...values)) - 0.2, Math.log10(Math.max(...values)) + 0.2];
    Plotly.react(
      this.chart,
      curves.map(({ policy, num_bytes: sizes }) => trace(policy, tokens, sizes)),
      {
        ...layout,
        height: 250,
        showlegend: true,
        legend: { ...layout.legend, y: -0.2 },
        xaxis: { ...axis, type: "log", tickvals: [100, 1000, 10_000, 100_000, 1_000_000], hoverformat: ",d",
          ticktext: ["100", "1,000", "10,000", "100,000", "1M tokens"], showgrid: false },
        yaxis: { ...axis, type: "log", range: limits, ...bytesTicks() },
        shapes: free && Math.log10(free) < limits[1] ? [freeLine(axis.gridcolor, free)] : [],
      },
      { displayModeBar: false, responsive: true, doubleClick: "reset" },
    );
    this.chart.setAttribute(
      "aria-label",
      `Bytes of keys and values by length of the text: the ring stays at ${bytes(this.window.kv_bytes)}, a cache that ` +
        `keeps everything takes ${bytes(full.num_bytes.at(-1))} at ${count(tokens.at(-1))} tokens.`,
    );
  }

  async #fit() {
    if (this.card && this.chart.clientWidth && this.chart.data) (await plotly()).Plots.resize(this.chart);
  }

  async #use() {
    this.use.disabled = true;
    await post(this.chatId() ? `/estimate/use?chat=${this.chatId()}` : "/estimate/use", { window: this.window.window });
    this.used();
  }
}

// The advice says why another window is in force.
const asked = ({ window, in_force: inForce }) => (window === inForce ? "" : ` (${count(window)} asked)`);

function trace(policy, tokens, sizes) {
  const [colourName, dash, width] = TRACES[policy];
  const colour = getComputedStyle(document.body).getPropertyValue(colourName).trim();
  return {
    type: "scatter",
    mode: "lines",
    name: policy,
    uid: policy,
    x: tokens,
    y: sizes,
    line: { color: colour, dash, width },
    text: sizes.map(bytes),
    hovertemplate: "%{text}<extra>%{fullData.name}</extra>",
  };
}

const freeLine = (color, free) => ({
  type: "line",
  xref: "paper",
  x0: 0,
  x1: 1,
  y0: free,
  y1: free,
  line: { color, width: 1.5 },
  label: { text: "free memory", textposition: "start", yanchor: "top", font: { size: 11 } },
});

function fact(label, value) {
  const made = element("span", "fact");
  made.append(element("span", "fact-label", label), element("b", "", value));
  return made;
}
