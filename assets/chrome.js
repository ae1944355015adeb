// What surrounds the text: drawers on a narrow screen, the settings sheet, light and dark.

import { remember, remembered } from "./remembered.js";

const THEME_KEY = "ringside.theme";

export function watchChrome() {
  const body = document.body;
  const settings = document.getElementById("rs-open-settings");

  const chrome = {
    // "start": settings and ways to begin; "chat": the transcript, with the settings one click away.
    show(view) {
      body.dataset.rsView = view;
      chrome.toggleSettings(false);
    },
    open(name) {
      body.dataset.rsOpen = name;
      window.dispatchEvent(new Event("resize"));
    },
    close() {
      delete body.dataset.rsOpen;
    },
    toggleSettings(open) {
      body.classList.toggle("rs-settings-open", open);
      settings.setAttribute("aria-expanded", String(open));
    },
  };

  settings.addEventListener("click", () => chrome.toggleSettings(!body.classList.contains("rs-settings-open")));
  document.getElementById("rs-close-settings").addEventListener("click", () => {
    chrome.toggleSettings(false);
    settings.focus();
  });
  for (const button of document.querySelectorAll("[data-open]")) {
    button.addEventListener("click", () => chrome.open(button.dataset.open));
  }
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => chrome.close());
  document.getElementById("rs-skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address names the chat
    const fields = ["rs-notebook-text", "rs-input"].map((id) => document.getElementById(id));
    fields.find((field) => field.checkVisibility())?.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (body.dataset.rsOpen) chrome.close();
    else if (body.classList.contains("rs-settings-open")) chrome.toggleSettings(false);
  });
  const scrim = document.createElement("div");
  scrim.className = "rs-scrim";
  scrim.addEventListener("click", () => {
    chrome.close();
    chrome.toggleSettings(false);
  });
  body.append(scrim);
  watchTheme();
  return chrome;
}

// As the system says, until a person says otherwise.
export function watchTheme() {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = remembered(THEME_KEY);
  const apply = () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    document.body.classList.toggle("dark", dark);
    document.documentElement.style.colorScheme = dark ? "dark" : "light";
    document.dispatchEvent(new Event("ringside:theme"));
  };
  system.addEventListener("change", apply);
  document.getElementById("rs-theme").addEventListener("click", () => {
    chosen = document.body.classList.contains("dark") ? "light" : "dark";
    remember(THEME_KEY, chosen);
    apply();
  });
  apply();
}
