// The line at the top: which model is in memory, how far loading is, the buttons for both ways, and the model's facts.

import { post } from "./api.js";
import { bytes, count, plural } from "./format.js";

export class Engine {
  constructor(complain, chatId) {
    this.root = document.getElementById("rs-engine");
    this.dot = this.root.querySelector(".engine-dot");
    this.text = document.getElementById("rs-engine-text");
    this.facts = document.getElementById("rs-engine-facts");
    this.bar = this.root.querySelector(".engine-bar");
    this.loadButton = document.getElementById("rs-load");
    this.unloadButton = document.getElementById("rs-unload");
    this.status = null;
    this.loadButton.addEventListener("click", () => post(chatId() ? `/load?chat=${chatId()}` : "/load").catch(complain));
    this.unloadButton.addEventListener("click", async () => {
      this.unloadButton.disabled = true;
      await post("/unload").catch(complain);
      this.unloadButton.disabled = false;
    });
    this.text.addEventListener("click", () => this.#toggle(this.facts.hidden));
    document.addEventListener("click", (event) => {
      if (!this.facts.hidden && !event.target.closest("#rs-engine, #rs-engine-facts")) this.#toggle(false);
    });
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.#toggle(false));
  }

  show(status) {
    this.status = status;
    const { state, model, progress } = status;
    this.dot.dataset.state = status.error && state === "empty" ? "error" : state;
    this.loadButton.hidden = state !== "empty" || Boolean(status.held_for);
    this.unloadButton.hidden = state === "empty";
    this.text.textContent = words(status);
    this.text.disabled = !model;
    this.text.title = model ? "What is loaded" : "";
    const share = state === "loading" && progress?.total ? progress.done / progress.total : null;
    this.bar.hidden = state !== "loading";
    this.bar.classList.toggle("unknown", share === null);
    if (share !== null) this.bar.firstElementChild.style.width = `${(100 * share).toFixed(1)}%`;
    if (!model) this.#toggle(false);
  }

  #toggle(open) {
    this.facts.hidden = !open;
    this.text.setAttribute("aria-expanded", String(open));
    if (open) this.#drawFacts(this.status.model);
  }

  #drawFacts(model) {
    const list = document.createElement("dl");
    for (const [label, value] of rows(model)) {
      const term = document.createElement("dt");
      const description = document.createElement("dd");
      term.textContent = label;
      description.textContent = value;
      list.append(term, description);
    }
    const notes = document.createElement("ul");
    notes.className = "notes";
    for (const sentence of model.notices) {
      const note = document.createElement("li");
      note.textContent = sentence;
      notes.append(note);
    }
    this.facts.replaceChildren(list, ...(model.notices.length ? [notes] : []));
  }
}

function words({ state, model, progress, error, process_bytes: held, held_for: heldFor }) {
  if (heldFor) return "A measurement is running";
  if (state === "loading") return progress?.stage ? progress.stage : "Loading";
  if (!model) return error ? error : "No model in memory";
  const window = `W ${count(model.window)}${asked(model)}`;
  return [model.name, model.policy, window, held ? bytes(held) : ""].filter(Boolean).join(" · ");
}

// Why it is another one is among the model's notices.
function asked({ window, asked_window: asked }) {
  return asked && asked !== window ? `, ${count(asked)} asked` : "";
}

function rows(model) {
  const trained = model.trained_window ? `, trained window ${count(model.trained_window)}` : "";
  return [
    ["Architecture", model.architecture],
    ["Runs on", model.device],
    ["Weights", `${bytes(model.weights_bytes)}, ${model.precision}`],
    ["Layers", `${plural(model.num_sliding_layers, "sliding layer")}${trained}; ${plural(model.num_full_layers, "full layer")}`],
    ["Window in force", `${plural(model.window, "token")}, ${plural(model.sinks, "sink")}${asked(model)}`],
    ["Trained for", model.context_tokens ? plural(model.context_tokens, "token") : "not said"],
    ["A full cache grows by", `${bytes(model.kv_bytes_per_token_full)} a token`],
    ["Chat template", model.has_chat_template ? "yes" : "none: it continues text"],
  ];
}
