"""How well a configuration predicts a text: the loss of every token, computed in a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean

from app.proof.isolated import stream
from backends import registry
from backends.contract import ScoresText
from backends.requests import LoadRequest

_MOST_CHARS_PER_TOKEN = 16


@dataclass
class Losses:
    """Losses of a text's tokens in nats, in order; grows while `score` is iterated.

    `values[i]` is for the text's token i + 1: the first one has nothing to be predicted from.
    """

    values: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    def by_depth(self, num_tokens: int) -> list[tuple[int, float]]:
        """Return (end of the stretch, mean loss) over stretches of `num_tokens` tokens; a shorter rest is left out."""
        starts = range(0, len(self.values) - num_tokens + 1, num_tokens)
        return [(start + num_tokens, fmean(self.values[start : start + num_tokens])) for start in starts]


def score(load: LoadRequest, text: str, num_tokens: int, losses: Losses) -> Generator[None, None, None]:
    """Add the losses of the text's first `num_tokens` tokens to `losses` as they come, yielding after each.

    Yields nothing where the backend cannot score a text.

    Raises:
        RingsideError: as loading and scoring do.
    """
    beginning = text[: _MOST_CHARS_PER_TOKEN * num_tokens]  # tokenising all of a long text would take longer
    for loss in stream(__name__, "token_losses", load, beginning, num_tokens):
        losses.values.append(loss)
        yield


def token_losses(load: LoadRequest, text: str, num_tokens: int) -> Iterator[float]:
    """Load the model and yield losses; runs in the process of its own."""
    backend = registry.load(load, lambda progress: None)
    with contextlib.closing(backend):
        if isinstance(backend, ScoresText):
            yield from islice(backend.token_losses(text, lambda: False), num_tokens)


def reference_text() -> str | None:
    """Return a long English text most machines have: Python's own language reference; None where it was left out."""
    try:
        from pydoc_data.topics import topics  # type: ignore[import-untyped, unused-ignore]
    except ImportError:  # some distributions package it apart
        return None
    return "\n\n".join(topics[name] for name in sorted(topics) if len(topics[name]) > 2000)
