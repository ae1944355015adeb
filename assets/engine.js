// The line at the top: which model is in memory, how far loading is, and the buttons for both ways.

import { post } from "./api.js";
import { bytes, count } from "./format.js";

const POLICIES = { ring: "ring", "as trained": "as trained", full: "everything kept" };

export class Engine {
  constructor(complain, chatId) {
    this.root = document.getElementById("rs-engine");
    this.dot = this.root.querySelector(".engine-dot");
    this.text = this.root.querySelector(".engine-text");
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
  }

  show(status) {
    this.status = status;
    const { state, model, progress } = status;
    this.dot.dataset.state = status.error && state === "empty" ? "error" : state;
    this.loadButton.hidden = state !== "empty";
    this.unloadButton.hidden = state === "empty";
    this.text.textContent = this.#words(status);
    this.text.title = model ? `${model.architecture}, ${model.precision}, ${model.device}` : "";
    const share = state === "loading" && progress?.total ? progress.done / progress.total : null;
    this.bar.hidden = state !== "loading";
    this.bar.classList.toggle("unknown", share === null);
    if (share !== null) this.bar.firstElementChild.style.width = `${(100 * share).toFixed(1)}%`;
  }

  #words({ state, model, progress, error, process_bytes: held }) {
    if (state === "loading") return progress?.stage ? progress.stage : "Loading";
    if (!model) return error ? error : "No model in memory";
    return `${model.name} · ${POLICIES[model.policy]} · W ${count(model.window)} · ${bytes(held)}`;
  }
}
