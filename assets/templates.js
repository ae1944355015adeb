// The names of a model's own chat templates, to choose one of them instead of writing one.

export function offerTemplates(names) {
  const box = document.getElementById("rs-template-names");
  const field = document.querySelector("#rs-chat-template textarea");
  if (!box || !field) return; // the card is drawn when it is opened first
  box.hidden = names.length < 2;
  const buttons = names.map((name) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "mini";
    button.textContent = name;
    button.addEventListener("click", () => fill(field, name));
    return button;
  });
  box.replaceChildren("This model’s templates: ", ...buttons);
}

// As if it were typed, so that Gradio takes it over.
function fill(field, text) {
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
