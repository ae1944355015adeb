// What search results look like: groups by chat, titles, snippets with the words found marked.

import { element, textElement } from "./elements.js";
import { day } from "./format.js";

export function groupElement(label, options) {
  const group = element("div", "found-group");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  const heading = textElement("div", "found-chat", label);
  heading.setAttribute("aria-hidden", "true");
  group.append(heading, ...options);
  return group;
}

export function titleElement(chat) {
  const option = optionElement(`rs-found-chat-${chat.id}`, "found-title");
  option.dataset.chat = chat.id;
  option.append(textElement("span", "chat-name", chat.title), element("span", "chat-when", day(chat.updated_at_s)));
  return option;
}

export function hitElement(message, hit, number) {
  const option = optionElement(`rs-found-${message.message_id}-${number}`, "found-hit");
  option.dataset.message = message.message_id;
  option.dataset.hit = number;
  option.append(element("span", "found-by", message.role === "user" ? "You" : "Reply"), snippetElement(hit));
  return option;
}

export function moreElement(message) {
  const option = optionElement(`rs-found-more-${message.message_id}`, "found-more");
  option.dataset.message = message.message_id;
  option.textContent = "All hits in this reply";
  return option;
}

export function noteElement(text) {
  return element("p", "found-note", text);
}

// Marks count characters as the server does, in code points. A snippet out of the middle begins with a whole word.
function snippetElement({ snippet, marks, start }) {
  const characters = Array.from(snippet);
  const isInside = start > marks[0][0];
  const space = isInside ? characters.findIndex((character) => /\s/.test(character)) : -1;
  let done = space >= 0 && space < marks[0][0] ? space + 1 : 0;
  const line = textElement("span", "snippet", isInside ? "… " : "");
  for (const [from, to] of marks) {
    line.append(characters.slice(done, from).join(""), element("mark", "", characters.slice(from, to).join("")));
    done = to;
  }
  line.append(characters.slice(done).join(""));
  return line;
}

function optionElement(id, className) {
  const option = element("div", className);
  option.id = id;
  option.setAttribute("role", "option");
  option.setAttribute("aria-selected", "false");
  return option;
}
