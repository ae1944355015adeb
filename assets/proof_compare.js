// The page Compare: two to four configurations of one model, or the minimal experiment without any.

import { ProofForm } from "./proof_form.js";

const page = new ProofForm(["compare", "experiment"], "Compare");
const { chosen } = (await page.begin()) ?? { chosen: null };

if (chosen) {
  page.addRun({ ...chosen, policy: "ring" });
  page.addRun({ ...chosen, policy: "full" });
}
document.getElementById("rs-add-run").addEventListener("click", () => {
  page.addRun({ ...chosen, policy: "as trained" }).querySelector("select").focus();
});
document.getElementById("rs-experiment").addEventListener("click", () => page.start("experiment", () => ({})));
page.form.addEventListener("submit", (event) => {
  event.preventDefault();
  page.start("compare", () => ({
    model: page.form.elements.model.value,
    runs: page.runValues(),
    prompt: page.form.elements.prompt.value,
    tokens: page.number("tokens"),
    seed: page.number("seed"),
    temperature: page.number("temperature"),
    reference_tokens: page.number("reference_tokens"),
  }));
});
document.body.classList.add("rs-ready");
