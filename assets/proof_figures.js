// The figures and tables of a report: Plotly charts in elements that stay, drawn in place, in the page's colours.

import { bytesTicks, linearBytesTicks } from "./bytes_axis.js";
import { plotly } from "./charts.js";

const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset" };
const PALETTE = ["--rs-chart-kv", "--rs-chart-full", "--rs-chart-device", "--rs-chart-process"];

export class Figures {
  constructor(root) {
    this.root = root;
    this.figures = [];
    this.drawing = Promise.resolve();
    document.addEventListener("ringside:theme", () => this.draw(this.figures));
  }

  // One drawing after the other; a later one takes the place of those that wait.
  draw(figures) {
    this.figures = figures;
    this.drawing = this.drawing.then(() => figures === this.figures && this.#draw(figures));
    return this.drawing;
  }

  async #draw(figures) {
    while (this.root.children.length > figures.length) this.root.lastChild.remove();
    if (!figures.length) return;
    const Plotly = await plotly();
    for (const [at, figure] of figures.entries()) {
      const card = this.root.children[at] ?? this.root.appendChild(cardFor());
      card.querySelector("h3").textContent = figure.title;
      card.querySelector("p").textContent = figure.caption;
      await Plotly.react(card.querySelector(".chart"), traces(figure), layout(figure), CONFIG);
    }
  }
}

export function colour(name) {
  return getComputedStyle(document.body).getPropertyValue(name).trim();
}

function traces(figure) {
  return figure.data.map((trace, at) => ({
    ...trace,
    line: { ...trace.line, color: colour(PALETTE[at % PALETTE.length]) },
  }));
}

// What every chart here has in common.
export function frame() {
  const line = colour("--rs-line");
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, ticks: "", automargin: true };
  return {
    axis,
    layout: {
      autosize: true,
      margin: { l: 8, r: 12, t: 8, b: 8 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "IBM Plex Sans, ui-sans-serif, system-ui, sans-serif", size: 12, color: colour("--rs-ink-soft") },
      hovermode: "x unified",
      hoverlabel: { bgcolor: colour("--rs-raised"), bordercolor: colour("--rs-line-strong"), font: { color: colour("--rs-ink") } },
      legend: { orientation: "h", x: 0, y: -0.34, yanchor: "top", bgcolor: "rgba(0,0,0,0)" },
    },
  };
}

function layout(figure) {
  const { axis, layout: common } = frame();
  const { xaxis, yaxis } = figure.layout;
  const isBytes = yaxis.title?.text === "bytes";
  const bytes = isBytes ? { title: { text: "" }, ...byteTicks(figure) } : {};
  return {
    ...common,
    height: 300,
    uirevision: figure.title,
    showlegend: true,
    xaxis: { ...xaxis, ...axis, title: { ...xaxis.title, standoff: 6 }, showgrid: false, tickformat: xaxis.type === "log" ? "~s" : ",d" },
    yaxis: { ...yaxis, ...axis, ...bytes },
  };
}

function byteTicks({ data, layout: { yaxis } }) {
  if (yaxis.type === "log") return bytesTicks();
  return linearBytesTicks(0, data.flatMap(({ y }) => y).reduce((most, value) => Math.max(most, value), 0));
}

function cardFor() {
  const card = document.createElement("figure");
  card.className = "card figure";
  const chart = document.createElement("div");
  chart.className = "chart";
  card.append(document.createElement("h3"), document.createElement("p"), chart);
  return card;
}

// A report's table; long ones are folded away.
export function tableElement(table) {
  const made = document.createElement("table");
  made.append(rowElement("th", table.columns));
  for (const row of table.rows) made.append(rowElement("td", row));
  const scroll = document.createElement("div");
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", table.title);
  scroll.append(made);
  const box = document.createElement(table.detail ? "details" : "section");
  const heading = document.createElement(table.detail ? "summary" : "h3");
  heading.textContent = table.title;
  box.className = "card table";
  box.append(heading, scroll);
  return box;
}

function rowElement(tag, cells) {
  const row = document.createElement("tr");
  for (const [at, text] of cells.entries()) {
    const cell = document.createElement(at === 0 && tag === "td" ? "th" : tag);
    if (tag === "th") cell.scope = "col";
    else if (at === 0) cell.scope = "row";
    cell.textContent = text;
    row.append(cell);
  }
  return row;
}
