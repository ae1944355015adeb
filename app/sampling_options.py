"""The options of sampling and constraints that `ringside chat` and `ringside generate` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.sampling_text import logit_bias_json, parse_logit_bias, read_breakers
from app.shared_options import taking


def _text(help_text: str) -> Any:
    return Annotated[str | None, typer.Option(help=help_text, show_default=False)]


def _texts(flag: str, help_text: str) -> Any:
    return Annotated[list[str] | None, typer.Option(flag, help=help_text, show_default=False)]


def _number(help_text: str, low: float, high: float) -> Any:
    return Annotated[float | None, typer.Option(help=help_text, min=low, max=high, show_default=False)]


_OPTIONS: dict[str, Any] = {
    "top_k": _text('Draw from the k likeliest tokens; "none" for all.'),
    "top_p": _number("Draw from this share of the likelihood; 1 for all.", 0, 1),
    "min_p": _number("Leave out tokens below this fraction of the likeliest.", 0, 1),
    "repetition_penalty": _number("Above 1 avoids recent tokens; 1 is off.", 0.01, 100),
    "repetition_window": _text('How many tokens back penalties look; "none" for all.'),
    "presence_penalty": _number("Taken off every recent token; 0 is off.", -100, 100),
    "frequency_penalty": _number("Taken off a recent token as often as it came; 0 is off.", -100, 100),
    "logit_bias": _texts("--logit-bias", "TOKEN=BIAS, an id or a text; -inf never draws it; may be given again."),
    "typical_p": _number("Draw from this share of the most typical tokens; 1 for all.", 0, 1),
    "top_n_sigma": _text('Leave out logits so many standard deviations below the largest; "none" is off.'),
    "xtc_probability": _number("How often XTC leaves out top choices; 0 is never.", 0, 1),
    "xtc_threshold": _number("Likelihood that counts as a top choice for XTC.", 0, 1),
    "dry_multiplier": _number("Strength of DRY against repeated passages; 0 is off.", 0, 100),
    "dry_base": _number("DRY grows by this factor with each repeated token.", 1, 100),
    "dry_allowed_length": Annotated[
        int | None, typer.Option(help="Repeats shorter than this are free of DRY.", min=1, show_default=False)
    ],
    "dry_window": _text('How many tokens back DRY looks; "none" for the whole text.'),
    "dry_breakers": _texts("--dry-breaker", "Text that ends a repeat; \\n is a line end; may be given again."),
    "mirostat_tau": _text('Bits of surprise a token that mirostat 2 aims at; "none" is off.'),
    "mirostat_eta": _number("How fast mirostat 2 corrects itself.", 0, 1),
    "json_schema": _text("JSON schema that the reply follows, or a file that holds it."),
    "grammar": _text("Lark or GBNF grammar, or /regular expression/, that the reply follows, or a file that holds it."),
}


def _as_settings(given: dict[str, Any]) -> dict[str, Any]:
    for name in ("top_k", "repetition_window", "dry_window", "top_n_sigma", "mirostat_tau"):
        if name in given:
            given[name] = _number_or_text(given[name])
    for name in ("json_schema", "grammar"):
        if name in given:
            given[name] = _text_or_file(given[name])
    if lines := given.pop("logit_bias", None):
        try:
            given["logit_bias"] = logit_bias_json(parse_logit_bias(lines))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    if lines := given.pop("dry_breakers", None):
        given["dry_breakers"] = read_breakers(lines)
    return given


def _number_or_text(text: str) -> int | float | str:
    if text.isdecimal():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _text_or_file(text: str) -> str:
    path = Path(text)
    try:
        return path.read_text("utf-8") if path.is_file() else text
    except OSError:  # a text too long to be a name
        return text


takes_sampling = taking(_OPTIONS, _as_settings)
"""Gives a command these options; its `**settings` hold those that were given, as flat settings."""
