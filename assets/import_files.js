// Importing files of chats, by button or dropped anywhere on the page: several at once, with one sentence for each.

import { post, Problem } from "./api.js";
import { openDialog } from "./dialog.js";
import { button, element } from "./elements.js";
import { plural } from "./format.js";

const MAX_BYTES = 200_000_000; // what the server takes; a larger file is not even read

let withTemplates = false; // whether the next files may bring their chat templates

// `open(chatId)` shows a chat that came in; `refresh()` is called once all files are through.
export function watchImports(open, refresh) {
  const files = document.getElementById("rs-import-files");
  document.getElementById("rs-import").addEventListener("click", () => files.click());
  files.addEventListener("change", () => {
    const chosen = [...files.files];
    files.value = ""; // the same file can be chosen again
    if (chosen.length) importAll(chosen, open, refresh);
  });
  watchDrops((dropped) => importAll(dropped, open, refresh));
}

async function importAll(files, open, refresh) {
  const { dialog, body } = openDialog("Import", "imports");
  const list = document.createElement("ul");
  list.setAttribute("aria-live", "polite");
  const more = moreFiles(dialog);
  body.append(list, more);
  const show = (chatId) => {
    dialog.close();
    open(chatId);
  };
  for (const file of files) {
    const line = document.createElement("li");
    line.append(nameOf(file), " …");
    list.append(line);
    line.replaceChildren(...(await outcome(file, show)));
  }
  refresh();
}

// A way to go on from the report: with what was left out because it is a program, if the person wants that.
function moreFiles(dialog) {
  const choice = element("label", "import-templates");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = withTemplates;
  box.addEventListener("change", () => (withTemplates = box.checked));
  choice.append(box, " Chat templates of the next files too: they are programs, so only from people you trust.");
  const choose = button("mini", "Choose files", "Choose more files to import");
  choose.addEventListener("click", () => {
    dialog.close();
    document.getElementById("rs-import-files").click();
  });
  const foot = element("div", "import-more");
  foot.append(choice, choose);
  return foot;
}

// Imports one file and returns what to say of it.
async function outcome(file, show) {
  try {
    const { chats, left_out } = await post(`/import${withTemplates ? "?with_templates=true" : ""}`, { name: file.name, content: await textOf(file) });
    const open = button("mini", "Open", `Open ${chats[0].title || "the chat"}`);
    open.addEventListener("click", () => show(chats[0].id));
    const said = element("span", "import-said");
    said.append(nameOf(file), chats.length === 1 ? ` is here as “${chats[0].title}”.` : ` brought ${plural(chats.length, "chat")}.`);
    if (left_out) said.append(` Left out: ${left_out}.`);
    return [said, open];
  } catch (problem) {
    return [element("span", "import-said problem", `${problem.message} ${problem.hint ?? ""}`)];
  }
}

async function textOf(file) {
  if (file.size > MAX_BYTES) throw new Problem(`${file.name} is larger than ${MAX_BYTES / 1e6} MB.`, "Split it first.");
  let bytes;
  try {
    bytes = await file.arrayBuffer();
  } catch {
    throw new Problem(`${file.name} cannot be read.`, "Folders are not taken; choose the files in it.");
  }
  const start = new TextDecoder("latin1").decode(bytes.slice(0, 15));
  if (start === "SQLite format 3") {
    throw new Problem(`${file.name} is a database.`, `If it is a backup of Ringside's, “ringside import ${file.name}” brings its chats back.`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Problem(`${file.name} is not a text file in UTF-8.`, "Choose a text or JSON file.");
  }
}

const nameOf = (file) => element("b", "", file.name);

// Only files: text that is dragged, and chats of the list, go where they belong.
function watchDrops(take) {
  const { body } = document;
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0; // every element on the way reports entering and leaving
  const leave = () => {
    depth = 0;
    body.classList.remove("rs-dropping");
  };
  document.addEventListener("dragenter", (event) => {
    if (!hasFiles(event)) return;
    depth += 1;
    body.classList.add("rs-dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (hasFiles(event) && (depth -= 1) <= 0) leave();
  });
  document.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    leave();
    take([...event.dataTransfer.files]);
  });
}
