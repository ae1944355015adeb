"""The controls of the samplers that few people reach for, and of what a reply follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

KEPT_WHERE_EMPTY = ("dry_allowed_length",)
"""Numbers that always hold one: an emptied field leaves the setting as it was."""


def sampling_card(add: Callable[[str, Any], None]) -> None:
    """Make the controls and hand each over by the name of its setting."""
    with gr.Row():
        add("presence_penalty", _slider("Presence penalty", "Above 0 avoids every recent word.", -2, 2))
        add("frequency_penalty", _slider("Frequency penalty", "Avoids a recent word as often as it came.", -2, 2))
        add("typical_p", _slider("Typical-p", "Draw from this share of unsurprising tokens. 1 is off.", 0, 1))
        add("top_n_sigma", _number("Top-n-sigma", "Leave out logits so many deviations below the best. Empty is off."))
    with gr.Row():
        add("xtc_probability", _slider("XTC probability", "How often the likeliest tokens are left out.", 0, 1))
        add("xtc_threshold", _slider("XTC threshold", "Likelihood from which a token counts as likeliest.", 0, 1))
        add("mirostat_tau", _number("Mirostat 2, bits", "Surprise a token that is aimed at. Empty is off."))
        add("mirostat_eta", _slider("Mirostat 2, rate", "How fast it corrects itself.", 0, 1))
    with gr.Row():
        add("dry_multiplier", _slider("DRY strength", "Avoids passages that came before. 0 is off.", 0, 5))
        add("dry_base", _slider("DRY growth", "Factor for each repeated token.", 1, 4))
        add("dry_allowed_length", _whole("DRY free length, tokens", "Shorter repeats cost nothing."))
        add("dry_window", _whole("DRY window, tokens", "How far back it looks. Empty for the whole text."))
    with gr.Row():
        add(
            "dry_breakers",
            _lines("DRY breakers", "A token that holds one ends a repeat. One a line; \\n is a line end."),
        )
        add("logit_bias", _lines("Logit bias", "TOKEN=BIAS, one a line. word=-2 is rarer, 11=-inf never comes."))
    with gr.Row():
        add(
            "json_schema",
            _lines("JSON schema", "The reply is JSON that it allows. Empty for free text."),
        )
        add(
            "grammar",
            _lines("Grammar", "Lark, GBNF or /regular expression/, in place of a schema."),
        )


def _slider(label: str, info: str, low: float, high: float) -> Any:
    return gr.Slider(low, high, step=0.01, label=label, info=info, buttons=[])


def _number(label: str, info: str) -> Any:
    return gr.Number(label=label, info=info)


def _whole(label: str, info: str) -> Any:
    return gr.Number(label=label, info=info, precision=0)


def _lines(label: str, info: str) -> Any:
    return gr.Textbox(label=label, info=info, lines=2, max_lines=8)
