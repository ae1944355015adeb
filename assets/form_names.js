// Names for Gradio's groups: a heading stands over their choices (seen in 6.31), and nothing ties it to them.

let numNamed = 0;

export function nameGroups(form) {
  const name = () => {
    for (const group of form.querySelectorAll("fieldset:not([aria-labelledby]), [role=radiogroup]:not([aria-labelledby])")) {
      const heading = group.querySelector("[data-testid=block-info]");
      if (!heading) continue;
      heading.id ||= `rs-group-${(numNamed += 1)}`;
      group.setAttribute("role", "radiogroup");
      group.setAttribute("aria-labelledby", heading.id);
    }
  };
  new MutationObserver(name).observe(form, { childList: true, subtree: true }); // an opened section draws its own late
  name();
}
