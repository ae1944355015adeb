// What the forms of Compare and Doctor share: the model, configurations as rows of controls, and starting.

import { get, post, showProblem } from "./api.js";
import { element } from "./elements.js";
import { iconButton } from "./icons.js";
import { Shown } from "./proof_shown.js";
import { watchTheme } from "./chrome.js";

const POLICIES = [["ring", "Ring"], ["as trained", "As trained"], ["full", "Full"]];
const KV_TYPES = [["auto", "Plain"], ["int8", "int8"], ["fp8", "fp8"]];
const LOOK_AGAIN_MS = 5000;

export class ProofForm {
  constructor(kinds, label) {
    watchTheme();
    this.label = label;
    this.form = document.getElementById("rs-proof-form");
    this.runs = document.getElementById("rs-runs");
    this.problem = document.getElementById("rs-form-problem");
    this.startButton = document.getElementById("rs-proof-start");
    this.shown = new Shown(kinds, (overview) => this.#know(overview));
  }

  // Fills the form and shows what runs; returns the choices.
  async begin() {
    try {
      this.choices = await get("/measurements/choices");
      this.form.elements.model.value = this.choices.chosen.model;
      const list = document.getElementById("rs-models");
      list.replaceChildren(
        ...this.choices.models.map(({ label, model }) => {
          const option = element("option", "", label);
          option.value = model;
          return option;
        }),
      );
      await this.shown.begin();
    } catch (problem) {
      showProblem(this.problem, problem);
    }
    // the chat may load or unload a model meanwhile
    setInterval(() => document.hidden || this.shown.list().catch(() => {}), LOOK_AGAIN_MS);
    return this.choices;
  }

  // A model in the chat's memory is unloaded by starting; the button and a sentence say so.
  #know({ engine, running }) {
    this.running = running;
    this.unload = engine === "ready";
    this.startButton.textContent = this.unload ? `Unload the chat's model and ${this.label.toLowerCase()}` : this.label;
    this.startButton.disabled = running !== null;
    const note = document.getElementById("rs-engine-note");
    const sentences = {
      ready: "A chat model is in memory and would disturb the measurement. The next message loads it again.",
      generating: "The chat is writing. Stop it, or wait for its end, before measuring.",
      loading: "The chat is loading a model. Wait for it, or unload it, before measuring.",
    };
    note.textContent = running ? "Messages sent in the chat wait until the measurement is over." : (sentences[engine] ?? "");
    note.hidden = !note.textContent;
  }

  number(name) {
    const field = this.form.elements[name];
    if (field.value === "" || !field.checkValidity()) {
      field.focus();
      throw new Error(`${field.closest("label").firstChild.textContent.trim()}: ${field.validationMessage}`);
    }
    return field.valueAsNumber;
  }

  // Sends what `body()` returns; whatever is wrong is said above the button.
  async start(kind, body) {
    showProblem(this.problem, null);
    this.startButton.disabled = true;
    try {
      const { name } = await post(`/measurements/${kind}`, { ...body(), unload: this.unload });
      await this.shown.list();
      this.shown.show(name);
      document.getElementById("rs-shown").scrollIntoView({ block: "start" });
    } catch (problem) {
      showProblem(this.problem, problem);
      this.startButton.disabled = this.running !== null;
    }
  }

  addRun(values, removable = true) {
    const number = this.runs.children.length + 1;
    const row = element("fieldset", "run");
    row.append(element("legend", "", removable ? `Configuration ${number}` : "Configuration"));
    const backends = this.choices.backends.map(({ name, title, problem }) => [name, title, problem]);
    row.append(
      select("backend", "Backend", backends, values.backend),
      select("policy", "Policy", POLICIES, values.policy),
      number_("window", "Window", values.window, 1),
      number_("sinks", "Sinks", values.sinks, 0),
      select("kv_type", "Keys and values", KV_TYPES, values.kv_type),
    );
    if (removable) {
      const drop = iconButton("icon-button small", "close", "Leave this configuration out");
      drop.addEventListener("click", () => {
        row.remove();
        this.#renumber();
      });
      row.append(drop);
    }
    this.runs.append(row);
    this.#renumber();
    return row;
  }

  #renumber() {
    const rows = [...this.runs.children];
    rows.forEach((row, at) => {
      if (rows.length > 1) row.querySelector("legend").textContent = `Configuration ${at + 1}`;
      const drop = row.querySelector(".icon-button");
      if (drop) drop.disabled = rows.length <= 2;
    });
    const add = document.getElementById("rs-add-run");
    if (add) add.disabled = rows.length >= 4;
  }

  runValues() {
    return [...this.runs.children].map((row) => {
      const value = (name) => row.querySelector(`[name=${name}]`);
      for (const name of ["window", "sinks"]) {
        if (value(name).value === "" || !value(name).checkValidity()) {
          value(name).focus();
          throw new Error(`${name === "window" ? "Window" : "Sinks"}: ${value(name).validationMessage}`);
        }
      }
      return {
        backend: value("backend").value,
        policy: value("policy").value,
        window: value("window").valueAsNumber,
        sinks: value("sinks").valueAsNumber,
        kv_type: value("kv_type").value,
      };
    });
  }
}

function select(name, label, options, chosen) {
  const box = element("label", "", label);
  const control = element("select");
  control.name = name;
  for (const [value, text, problem] of options) {
    const option = element("option", "", problem ? `${text} (not installed)` : text);
    option.value = value;
    option.disabled = Boolean(problem);
    option.title = problem ?? "";
    control.append(option);
  }
  control.value = chosen;
  box.append(control);
  return box;
}

function number_(name, label, value, least) {
  const box = element("label", "", label);
  const control = element("input");
  Object.assign(control, { name, type: "number", min: least, step: 1, required: true, value });
  box.append(control);
  return box;
}
