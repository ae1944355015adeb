// Signing out, offered where a password is in force.

import { get, post } from "./api.js";
import { openMenu } from "./menu.js";

export async function watchSession(complain) {
  const button = document.getElementById("rs-sign-out");
  const leave = (everywhere) => post("/sign-out", { everywhere }).then(() => location.assign("/app/login"), complain);
  button.addEventListener("click", () =>
    openMenu(button, "Sign out", [
      { label: "In this browser", run: () => leave(false) },
      { label: "In every browser", run: () => leave(true) },
    ]),
  );
  button.hidden = !(await get("/session")).login;
}
