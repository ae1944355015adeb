// A measurement on the page, running or kept: followed once a second by version, stopped, downloaded; and the list.

import { get, post, remove, showProblem } from "./api.js";
import { element } from "./elements.js";
import { count, day } from "./format.js";
import { icon, iconButton } from "./icons.js";
import { Figures, tableElement } from "./proof_figures.js";

const PERIOD_MS = 1000;
const MARKS = { good: "check", bad: "close" }; // drawings
const STATUS = { running: "running", finished: "finished", stopped: "stopped early", failed: "failed" };

export class Shown {
  // `kinds` are those this page lists; `changed(overview)` hears what the server is doing.
  constructor(kinds, changed) {
    this.kinds = kinds;
    this.changed = changed;
    this.name = null;
    this.figures = new Figures(at("rs-figures"));
    this.stopButton = at("rs-proof-stop");
    this.stopButton.addEventListener("click", () => this.#stop());
    window.addEventListener("hashchange", () => this.#open(location.hash.slice(1)));
  }

  // Shows what the address names, else what runs, else nothing.
  async begin() {
    const { running } = await this.list();
    const named = location.hash.slice(1);
    if (named || running) this.#open(named || running);
  }

  show(name) {
    if (location.hash.slice(1) === name) this.#open(name);
    else location.hash = name; // which opens it
  }

  async #open(name) {
    this.name = name || null;
    this.version = null;
    at("rs-shown").hidden = !this.name;
    if (this.name) await this.#follow(name);
  }

  async #follow(name) {
    clearTimeout(this.timer);
    let seen;
    try {
      seen = await get(`/measurements/${name}${this.version === null ? "" : `?version=${this.version}`}`);
    } catch (problem) {
      if (name === this.name) showProblem(at("rs-shown-problem"), problem);
      return;
    }
    if (name !== this.name) return;
    this.#draw(seen);
    if (seen.status === "running") this.timer = setTimeout(() => this.#follow(name), PERIOD_MS);
    else if (this.wasRunning) this.list();
    this.wasRunning = seen.status === "running";
  }

  #draw(seen) {
    const running = seen.status === "running";
    at("rs-shown-title").textContent = seen.title;
    const { text, done, total } = seen.stage;
    const share = total ? ` ${count(done)} of ${count(total)}` : "";
    at("rs-stage").textContent = running ? `${text}${share}` : STATUS[seen.status];
    const bar = at("rs-progress");
    bar.hidden = !running;
    if (total) [bar.max, bar.value] = [total, done];
    else bar.removeAttribute("value");
    this.stopButton.hidden = !running;
    if (!running) this.stopButton.disabled = false;
    showProblem(at("rs-shown-problem"), seen.error ? { message: seen.error, hint: seen.hint } : null);
    if (seen.version === this.version) return;
    this.version = seen.version;
    const any = seen.figures.length + seen.tables.length > 0;
    for (const [id, file] of [["rs-html", "report.html"], ["rs-json", "results.json"]]) {
      at(id).hidden = !any;
      at(id).href = `/app/measurements/${seen.name}/${file}`;
    }
    const hasVerdicts = seen.kind === "doctor";
    at("rs-verdicts").replaceChildren(...seen.verdicts.map(verdictElement));
    at("rs-sentences").replaceChildren(...seen.sentences.map((sentence) => element("li", "", sentence)));
    at("rs-tables").replaceChildren(...(hasVerdicts ? [] : seen.tables.map(tableElement)));
    this.figures.draw(seen.figures);
  }

  async #stop() {
    this.stopButton.disabled = true;
    at("rs-stage").textContent = "Stopping";
    await post("/measurements/stop").catch((problem) => showProblem(at("rs-shown-problem"), problem));
  }

  async list() {
    const overview = await get("/measurements");
    this.changed(overview);
    const rows = overview.kept.filter((seen) => this.kinds.includes(seen.kind));
    at("rs-kept").replaceChildren(...rows.map((seen) => this.#row(seen)));
    at("rs-kept-empty").hidden = rows.length > 0;
    return overview;
  }

  #row(seen) {
    const row = element("li");
    const open = element("a", "", seen.title);
    open.href = `#${seen.name}`;
    const facts = element("span", "soft", `${day(seen.started_at_s)}, ${STATUS[seen.status]}`);
    const drop = iconButton("icon-button small", "close", `Delete ${seen.title}`);
    drop.addEventListener("click", () => this.#delete(seen.name));
    row.append(open, facts, drop);
    return row;
  }

  async #delete(name) {
    try {
      await remove(`/measurements/${name}`);
      if (name === this.name) history.replaceState(null, "", location.pathname);
      if (name === this.name) this.#open("");
      await this.list();
    } catch (problem) {
      showProblem(at("rs-form-problem"), problem);
    }
  }
}

function verdictElement(verdict) {
  const box = element("article", `card verdict ${verdict.status}`);
  const mark = element("span", "mark", "?");
  if (MARKS[verdict.status]) mark.replaceChildren(icon(MARKS[verdict.status]));
  mark.setAttribute("role", "img");
  mark.setAttribute("aria-label", verdict.status);
  const head = element("h3");
  head.append(mark, verdict.question);
  box.append(head, element("p", "answer", verdict.verdict));
  if (verdict.evidence.length) {
    const list = element("ul");
    list.append(...verdict.evidence.map((sentence) => element("li", "", sentence)));
    box.append(list);
  }
  if (verdict.remedy) box.append(element("p", "remedy", verdict.remedy));
  return box;
}

function at(id) {
  return document.getElementById(id);
}
