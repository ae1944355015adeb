// The page Doctor: one configuration, perhaps a symptom, and the checks as they come.

import { ProofForm } from "./proof_form.js";

const page = new ProofForm(["doctor"], "Examine");
const choices = await page.begin();

if (choices) page.addRun(choices.chosen, false);
page.form.addEventListener("submit", (event) => {
  event.preventDefault();
  page.start("doctor", () => ({
    model: page.form.elements.model.value,
    run: page.runValues()[0],
    symptom: page.form.elements.symptom.value || null,
    tokens: page.number("tokens"),
    reference_tokens: page.number("reference_tokens"),
  }));
});
document.body.classList.add("rs-ready");
