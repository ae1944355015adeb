// The drawings on buttons, by the names of `app/ui/icons.py`, which puts them into the page.

const SVG = "http://www.w3.org/2000/svg";

// `label` is what a screen reader says; without one it is left out, for the button around it says it.
export function icon(name, label = "") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", "line-icon");
  if (label) {
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
  } else {
    svg.setAttribute("aria-hidden", "true");
  }
  const drawing = document.createElementNS(SVG, "use");
  drawing.setAttribute("href", `#rs-icon-${name}`);
  svg.append(drawing);
  return svg;
}

export function iconButton(className, name, label) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = className;
  made.setAttribute("aria-label", label);
  made.append(icon(name));
  return made;
}
