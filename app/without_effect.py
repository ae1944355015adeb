"""Settings that have no effect under other ones: one table of rules, for the page and for the command line."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from app.chat_settings import ChatSettings
from backends.requests import CachePolicy

_DRAWING = ("seed", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold")
_IN_PLACE_OF = ("top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc_probability", "xtc_threshold")


@dataclass(frozen=True)
class Rule:
    """Settings without effect while `holds`; `why` ends the sentence that says so."""

    names: tuple[str, ...]
    holds: Callable[[ChatSettings], bool]
    why: str


def _draws_by_surprise(settings: ChatSettings) -> bool:
    return settings.sampling.mirostat_tau is not None


def _leaves_one_by_top_p(settings: ChatSettings) -> bool:
    return settings.sampling.top_p == 0 and settings.sampling.typical_p == 1  # typical-p may leave out the likeliest


RULES = (
    Rule(
        (*_DRAWING, "mirostat_tau", "mirostat_eta"),
        lambda settings: settings.sampling.temperature == 0,
        "at temperature 0 the likeliest token always comes",
    ),
    Rule(_IN_PLACE_OF, _draws_by_surprise, "mirostat 2 takes its place"),
    Rule(("mirostat_eta",), lambda settings: not _draws_by_surprise(settings), "mirostat 2 is off"),
    Rule(
        tuple(name for name in (*_DRAWING, "temperature") if name != "top_k"),
        lambda settings: settings.sampling.top_k == 1 and not _draws_by_surprise(settings),
        "a top-k of 1 leaves only the likeliest token",
    ),
    Rule(
        ("seed", "temperature", "min_p", "xtc_probability", "xtc_threshold"),
        lambda settings: _leaves_one_by_top_p(settings) and not _draws_by_surprise(settings),
        "a top-p of 0 leaves only one token",
    ),
    Rule(("xtc_threshold",), lambda settings: settings.sampling.xtc_probability == 0, "XTC has a probability of 0"),
    Rule(
        ("xtc_probability",),
        lambda settings: settings.sampling.xtc_threshold > 0.5,
        "two tokens are never both above an XTC threshold of more than 0.5",
    ),
    Rule(
        ("repetition_window",),
        lambda settings: settings.sampling.repetition_penalty == 1 and not settings.sampling.counts_tokens,
        "repetition, presence and frequency penalty are off",
    ),
    Rule(
        ("dry_base", "dry_allowed_length", "dry_window", "dry_breakers"),
        lambda settings: settings.sampling.dry_multiplier == 0,
        "DRY has a strength of 0",
    ),
    Rule(
        ("keep_writing",),
        lambda settings: settings.json_schema is not None or settings.grammar is not None,
        "the reply ends where its schema or grammar does",
    ),
    Rule(("stop_in_reasoning",), lambda settings: not settings.stop, "there are no stop phrases"),
    Rule(("steering_every_tokens",), lambda settings: not settings.steering_notes, "there are no notes on the way"),
    Rule(
        ("window", "sinks", "pin_system_prompt"),
        lambda settings: settings.load.policy is CachePolicy.FULL,
        "a full cache keeps everything",
    ),
    Rule(
        ("growing_context_tokens",),
        lambda settings: settings.load.backend != "llamacpp" or settings.load.policy is CachePolicy.RING,
        "only llama.cpp sets a growing cache aside",
    ),
)
"""For a setting that several rules name, the first that holds is said."""


def without_effect(settings: ChatSettings) -> dict[str, str]:
    """Return a sentence by the name of each setting that has no effect now."""
    found: dict[str, str] = {}
    for rule in RULES:
        if rule.holds(settings):
            for name in rule.names:
                found.setdefault(name, f"Without effect: {rule.why}.")
    return found


def notes_on(given: Collection[str], settings: ChatSettings) -> list[str]:
    """Return a sentence for each setting given that has no effect."""
    return [f"{name}: {sentence}" for name, sentence in without_effect(settings).items() if name in given]
