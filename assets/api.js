// Calls to the page's own routes. Whatever goes wrong becomes one `Problem`: a sentence and the way out.

export class Problem extends Error {
  constructor(message, hint = "") {
    super(message);
    this.hint = hint;
  }
}

export const get = (path) => ask("GET", path);
export const post = (path, body) => ask("POST", path, body);
export const patch = (path, body) => ask("PATCH", path, body);
export const put = (path, body) => ask("PUT", path, body);
export const remove = (path) => ask("DELETE", path);

async function ask(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  const answer = await fetched(`/app${path}`, options);
  return answer.json();
}

// Text exactly as the server keeps it.
export async function getText(path) {
  const answer = await fetched(`/app${path}`, {});
  return answer.text();
}

async function fetched(url, options) {
  let answer;
  try {
    answer = await fetch(url, options);
  } catch {
    throw new Problem("Ringside does not answer.", "Start it again; this page will find it by itself.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) location.assign("/app/login");
  const said = await answer.json().catch(() => ({}));
  throw new Problem(said.message ?? `The request was not understood (${answer.status}).`, said.hint ?? "");
}

// Puts a problem into an element as text; a command to run is set as code.
export function showProblem(element, problem) {
  element.replaceChildren();
  element.hidden = !problem;
  if (!problem) return;
  element.append(problem.message, " ");
  const hint = problem.hint ?? "";
  if (hint.startsWith("pip ")) {
    const code = document.createElement("code");
    code.textContent = hint;
    element.append("Run ", code);
  } else {
    element.append(hint);
  }
}
