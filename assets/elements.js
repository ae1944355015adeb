// Elements, made in one line.

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

// For what people and models write: it begins at the side of its own first strong letter.
export function textElement(tag, className, text) {
  const made = element(tag, className, text);
  made.dir = "auto";
  return made;
}

// `name` is what a screen reader says where the text alone does not tell.
export function button(className, text, name = "") {
  const made = element("button", className, text);
  made.type = "button";
  if (name) made.setAttribute("aria-label", name);
  return made;
}
