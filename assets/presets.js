// Presets in the settings: choose and apply, keep the settings on the screen under a name, share them as files.

import { get, post, remove } from "./api.js";
import { button } from "./elements.js";
import { openMenu } from "./menu.js";

const byId = (name) => document.getElementById(`rs-preset${name}`);

export class Presets {
  // `setup` is the settings form on the screen, `chatId()` the chat it belongs to, or null for new ones.
  constructor(setup, chatId) {
    this.setup = setup;
    this.chatId = chatId;
    this.list = byId("");
    this.said = byId("-said");
    this.form = byId("-form");
    this.name = byId("-name");
    this.file = byId("-file");
    this.names = [];
    byId("-apply").addEventListener("click", () => this.#tell(() => this.#apply()));
    byId("-save").addEventListener("click", () => this.#openForm(this.form.hidden));
    byId("-cancel").addEventListener("click", () => this.#openForm(false));
    byId("-more").addEventListener("click", (event) => this.#openMenu(event.currentTarget));
    this.list.addEventListener("change", () => this.#enable());
    this.name.addEventListener("input", () => this.#nameButton());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#tell(() => this.#save());
    });
    this.form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation(); // the settings stay open
      this.#openForm(false);
    });
    this.file.addEventListener("change", () => this.#tell(() => this.#import()));
  }

  // The settings of another chat are on the screen.
  show() {
    byId("-scope").hidden = this.chatId() === null;
    this.said.textContent = "";
    byId("-ask").hidden = true;
    this.#openForm(false, false);
    this.#refresh().catch(() => {}); // the connection's own message says it
  }

  async #refresh(chosen = this.list.value) {
    const { names } = await get("/presets");
    this.names = names;
    const none = new Option(names.length ? "Choose one" : "None yet", "");
    this.list.replaceChildren(none, ...names.map((name) => new Option(name, name)));
    this.list.value = names.includes(chosen) ? chosen : "";
    this.#enable();
  }

  #enable() {
    this.list.disabled = this.names.length === 0;
    byId("-apply").disabled = !this.list.value;
  }

  async #apply() {
    const name = this.list.value;
    const chat = byId("-new").checked ? null : this.chatId();
    await this.setup.settled();
    await post(`/presets/${encodeURIComponent(name)}/apply${chat === null ? "" : `?chat=${chat}`}`);
    this.setup.show();
    return chat === null ? `New chats begin with “${name}”.` : `“${name}” holds from the next message on.`;
  }

  async #save() {
    await this.setup.settled();
    const { name } = await post("/presets", { name: this.name.value, chat: this.chatId() });
    this.#openForm(false);
    await this.#refresh(name);
    return `The settings are kept as “${name}”.`;
  }

  async #import() {
    const [file] = this.file.files;
    this.file.value = ""; // the same file can be chosen again
    const { name } = await post("/presets/import", { name: file.name, content: await file.text() });
    await this.#refresh(name);
    return `“${name}” is here; Apply uses it.`;
  }

  #openForm(open, focus = true) {
    this.form.hidden = !open;
    byId("-save").setAttribute("aria-expanded", String(open));
    if (open) {
      this.name.value = this.list.value;
      this.#nameButton();
    }
    if (focus) (open ? this.name : byId("-save")).focus();
  }

  #nameButton() {
    byId("-keep").textContent = this.names.includes(this.name.value.trim()) ? "Replace" : "Save";
  }

  #openMenu(opener) {
    const name = this.list.value;
    const ofOne = [
      { label: `Export “${name}”`, href: `/app/presets/${encodeURIComponent(name)}` },
      { label: `Delete “${name}”`, danger: true, run: () => this.#askToDelete(name) },
    ];
    openMenu(opener, "Presets", [{ label: "Import a file", run: () => this.file.click() }, ...(name ? ofOne : [])]);
  }

  #askToDelete(name) {
    const ask = byId("-ask");
    const [yes, no] = [button("mini danger", "Delete"), button("mini", "Keep")];
    const close = () => {
      ask.hidden = true;
      byId("-more").focus();
    };
    no.addEventListener("click", close);
    yes.addEventListener("click", () => {
      close();
      this.#tell(async () => {
        await remove(`/presets/${encodeURIComponent(name)}`);
        await this.#refresh();
        return `“${name}” is deleted.`;
      });
    });
    ask.replaceChildren(`Delete the preset “${name}”?`, yes, no);
    ask.hidden = false;
    yes.focus();
  }

  // Does something and says how it went.
  async #tell(call) {
    this.said.classList.remove("wrong");
    try {
      this.said.textContent = await call();
    } catch (problem) {
      this.said.classList.add("wrong");
      this.said.textContent = `${problem.message} ${problem.hint ?? ""}`;
    }
  }
}
