"""The pages Compare and Doctor as whole documents. Their scripts (`assets/proof_*.js`) fill and draw them."""

from __future__ import annotations

from app.ui.icons import ICONS, icon
from app.ui.markup import RING_ICON


def _link(href: str, label: str, here: str) -> str:
    current = ' aria-current="page"' if label == here else ""
    return f'<a href="{href}"{current}>{label}</a>'


def _page(title: str, script: str, lead: str, form: str) -> str:
    links = "".join(
        _link(href, label, title)
        for href, label in (("/", "Chat"), ("/app/compare", "Compare"), ("/app/doctor", "Doctor"))
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} – Ringside</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/app/assets/icon.png">
<link rel="stylesheet" href="/app/assets/page.css"><link rel="stylesheet" href="/app/assets/proof.css">
<script type="module" src="/app/assets/{script}"></script></head>
<body class="proof">{ICONS}
<header class="proof-top"><span class="brand">{RING_ICON}<span>Ringside</span></span>
  <nav aria-label="Pages">{links}</nav>
  <button type="button" class="icon-button" id="rs-theme" aria-label="Light or dark">{icon("theme")}</button></header>
<main>
  <h1>{title}</h1><p class="lead">{lead}</p>
  <form id="rs-proof-form" class="card" novalidate>{form}</form>
  <section id="rs-shown" class="shown" aria-label="The measurement" hidden>
    <header><h2 id="rs-shown-title"></h2><span class="tools">
      <button type="button" class="mini danger" id="rs-proof-stop" hidden>Stop</button>
      <a class="mini" id="rs-html" download hidden>HTML</a><a class="mini" id="rs-json" download hidden>JSON</a></span>
    </header>
    <p id="rs-stage" class="stage" role="status"></p><progress id="rs-progress" hidden></progress>
    <div class="problem" id="rs-shown-problem" role="alert" hidden></div>
    <div id="rs-verdicts" class="verdicts"></div><ul id="rs-sentences" class="sentences"></ul>
    <div id="rs-figures" class="figures"></div><div id="rs-tables"></div>
  </section>
  <section class="kept" aria-label="Kept measurements"><h2>Kept</h2><ul id="rs-kept"></ul>
    <p id="rs-kept-empty" class="soft">Nothing has been measured yet.</p></section>
</main></body></html>
"""


_MODEL = """<label class="wide">Model
  <input id="rs-model" name="model" list="rs-models" autocomplete="off" spellcheck="false" required>
  <datalist id="rs-models"></datalist><span class="help">One from the list, a path, or a hub id.</span></label>"""

_START = """<div class="problem wide" id="rs-form-problem" role="alert" hidden></div>
<p class="wide soft" id="rs-engine-note" hidden></p>
<div class="actions wide"><button type="submit" class="main-button" id="rs-proof-start">{label}</button>{more}</div>"""


def _number(name: str, label: str, value: str, least: int, help_text: str, step: str = "1") -> str:
    return (
        f'<label>{label}<input type="number" name="{name}" value="{value}" min="{least}" step="{step}" required>'
        f'<span class="help">{help_text}</span></label>'
    )


COMPARE = _page(
    "Compare",
    "proof_compare.js",
    "One prompt, one seed, two to four ways to keep the past, each in a fresh process, one after another. "
    "The curves grow while it runs; what was measured stays when you stop.",
    _MODEL + '<div class="runs wide" id="rs-runs" role="group" aria-label="Configurations"></div>'
    '<div class="wide"><button type="button" class="mini" id="rs-add-run">Add a configuration</button></div>'
    '<label class="wide">Prompt<textarea name="prompt" rows="2" dir="auto" '
    'placeholder="It was late in the year when the ship came back, …"></textarea></label>'
    + _number("tokens", "Tokens", "1000", 1, "Of each reply; past the window it gets interesting.")
    + _number("seed", "Seed", "0", 0, "The same in every run.")
    + _number("temperature", "Temperature", "0.8", 0, "0 always takes the likeliest.", "0.1")
    + _number("reference_tokens", "Reference tokens", "0", 0, "Of a known text, to be scored; 0 leaves it out.")
    + _START.format(
        label="Compare",
        more='<button type="button" class="text-button" id="rs-experiment" '
        'title="One attention layer, random tokens, four ways to keep a window: under a minute on a CPU">'
        "Why a ring: run the minimal experiment, no model</button>",
    ),
)

_SYMPTOMS = (
    ("", "None: check everything in order"),
    ("text-degrades", "The text degrades"),
    ("memory-runs-out", "Memory runs out"),
    ("no-faster", "It is no faster"),
)

DOCTOR = _page(
    "Doctor",
    "proof_doctor.js",
    "Does the model slide, is the cache bounded, are mask and positions right, is speed flat, is the text sound? "
    "Checked on your model, each answer with its numbers and what to do.",
    _MODEL
    + '<div class="runs wide" id="rs-runs" role="group" aria-label="Configuration"></div>'
    + '<label class="wide">What is wrong<select name="symptom">'
    + "".join(f'<option value="{value}">{label}</option>' for value, label in _SYMPTOMS)
    + '</select><span class="help">The walk begins where it shows.</span></label>'
    + _number("tokens", "Tokens written", "800", 0, "For memory and speed; 0 leaves it out.")
    + _number("reference_tokens", "Tokens scored", "800", 0, "For the text's soundness; 0 leaves it out.")
    + _START.format(label="Examine", more=""),
)
