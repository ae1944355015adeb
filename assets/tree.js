// The whole tree of a chat, to be walked with the arrow keys. A line of messages stays at one depth; only where there
// are variants does it go deeper, so that a chat of a thousand messages reads like one.

import { get } from "./api.js";
import { openDialog } from "./dialog.js";
import { element, textElement } from "./elements.js";
import { plural } from "./format.js";
import { icon } from "./icons.js";

const MAX_INDENTS = 12;
const STATES = {
  queued: "waiting",
  running: "being written",
  cancelled: "stopped",
  cut: "cut off",
  error: "ended by an error",
};

// Shows the tree; resolves with the id of the message to go to, or null.
export async function showTree(chatId) {
  const { messages, leaf } = await get(`/chats/${chatId}/tree`);
  const { dialog, body } = openDialog("Branches", "tree-dialog");
  const nodes = arranged(messages, leaf);
  const numEnds = nodes.filter((node) => node.children.length === 0).length;
  const about = document.createElement("p");
  about.textContent = nodes.length
    ? `${plural(nodes.length, "message")}, ${plural(numEnds, "branch", "branches")}. Arrow keys walk, Enter goes there.`
    : "There are no messages yet.";
  const list = document.createElement("div");
  list.className = "tree";
  list.setAttribute("role", "tree");
  list.setAttribute("aria-label", "Messages of this chat");
  const tree = new Tree(list, nodes);
  body.append(about, list);
  tree.start(leaf);
  return new Promise((resolve) => {
    tree.choose = (id) => {
      tree.chosen = id;
      dialog.close();
    };
    dialog.addEventListener("close", () => resolve(tree.chosen ?? null));
  });
}

// Orders messages as they are shown: each followed by all that follows it, variants one after the other.
function arranged(messages, leaf) {
  const nodes = new Map(messages.map((message) => [message.id, { ...message, children: [] }]));
  const roots = [];
  for (const node of nodes.values()) {
    node.above = nodes.get(node.parent) ?? null;
    (node.above?.children ?? roots).push(node);
  }
  for (let node = nodes.get(leaf); node; node = node.above) node.onPath = true;
  const ordered = [];
  const waiting = roots.toReversed ? roots.toReversed() : [...roots].reverse();
  while (waiting.length) {
    const node = waiting.pop();
    const beside = node.above?.children ?? roots;
    node.place = beside.indexOf(node) + 1;
    node.numVariants = beside.length;
    const deeper = node.above && (node.numVariants > 1 || node.above.numVariants > 1);
    node.level = (node.above?.level ?? 1) + (deeper ? 1 : 0);
    ordered.push(node);
    for (let at = node.children.length - 1; at >= 0; at -= 1) waiting.push(node.children[at]);
  }
  return ordered;
}

class Tree {
  constructor(list, nodes) {
    this.list = list;
    this.nodes = nodes;
    this.rows = new Map(nodes.map((node, index) => [node.id, { node, index, element: row(node, nodes[index + 1]) }]));
    list.append(...[...this.rows.values()].map(({ element }) => element));
    list.addEventListener("click", (event) => this.#clicked(event));
    list.addEventListener("keydown", (event) => this.#pressed(event));
  }

  start(leaf) {
    const first = this.rows.get(leaf) ?? [...this.rows.values()].find((each) => each.node.onPath) ?? this.rows.values().next().value;
    if (first) this.#focus(first.element);
  }

  #clicked(event) {
    const element = event.target.closest("[role=treeitem]");
    if (!element) return;
    if (event.target.closest(".twig")) this.#fold(element, element.getAttribute("aria-expanded") === "true");
    else this.choose(Number(element.dataset.id));
  }

  #pressed(event) {
    const element = event.target.closest("[role=treeitem]");
    if (!element || event.ctrlKey || event.altKey || event.metaKey) return;
    const act = {
      ArrowDown: () => this.#focus(next(element, "nextElementSibling")),
      ArrowUp: () => this.#focus(next(element, "previousElementSibling")),
      Home: () => this.#focus(this.list.firstElementChild),
      End: () => this.#focus(next(null, "previousElementSibling", this.list.lastElementChild)),
      ArrowRight: () => this.#inwards(element),
      ArrowLeft: () => this.#outwards(element),
      Enter: () => this.choose(Number(element.dataset.id)),
      " ": () => this.choose(Number(element.dataset.id)),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  #inwards(element) {
    const expanded = element.getAttribute("aria-expanded");
    if (expanded === "false") this.#fold(element, false);
    else if (expanded === "true") this.#focus(next(element, "nextElementSibling"));
  }

  // Folds what hangs on a message; where nothing does, goes to what this one hangs on.
  #outwards(element) {
    if (element.getAttribute("aria-expanded") === "true") {
      this.#fold(element, true);
      return;
    }
    const level = Number(element.getAttribute("aria-level"));
    let above = element.previousElementSibling;
    while (above && Number(above.getAttribute("aria-level")) >= level) above = above.previousElementSibling;
    this.#focus(above);
  }

  #fold(element, folded) {
    element.setAttribute("aria-expanded", String(!folded));
    const level = Number(element.getAttribute("aria-level"));
    let foldedAt = folded ? level : Infinity;
    for (let at = element.nextElementSibling; at; at = at.nextElementSibling) {
      const below = Number(at.getAttribute("aria-level"));
      if (below <= level) break;
      if (below <= foldedAt) foldedAt = Infinity;
      at.hidden = below > foldedAt;
      if (!at.hidden && at.getAttribute("aria-expanded") === "false") foldedAt = below;
    }
    this.#focus(element);
  }

  #focus(element) {
    if (!element) return;
    if (this.current) this.current.tabIndex = -1;
    this.current = element;
    element.tabIndex = 0;
    element.focus({ preventScroll: true });
    element.scrollIntoView({ block: "nearest" });
  }
}

function next(element, direction, from = element?.[direction]) {
  let at = from;
  while (at?.hidden) at = at[direction];
  return at;
}

function row(node, following) {
  const made = element("div", "tree-row");
  made.dataset.id = node.id;
  made.tabIndex = -1;
  made.style.setProperty("--depth", Math.min(node.level - 1, MAX_INDENTS));
  made.setAttribute("role", "treeitem");
  made.setAttribute("aria-level", node.level);
  made.setAttribute("aria-selected", "false");
  if (node.numVariants > 1) {
    made.setAttribute("aria-posinset", node.place);
    made.setAttribute("aria-setsize", node.numVariants);
  }
  if (following?.level > node.level) made.setAttribute("aria-expanded", "true");
  if (node.onPath) made.setAttribute("aria-current", "true");
  const who = node.role === "user" ? "You" : "Reply";
  const start = node.start.replace(/\s+/g, " ").trim() || "(empty)";
  const twig = element("span", "twig");
  twig.append(icon("next"));
  made.append(twig, element("span", "who", who), textElement("span", "start", start));
  if (node.numVariants > 1) made.append(element("span", "which", `${node.place} of ${node.numVariants}`));
  if (STATES[node.status]) made.append(element("span", "state", STATES[node.status]));
  return made;
}
