"""Repeats in a sequence, as DRY penalises them; both engines count them here.

What came before is in an automaton of all its passages (`backends.suffix_automaton`), which is asked for those that the
text ends with and for what followed them; nothing goes through the window or the text again.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from backends.requests import Sampling
from backends.suffix_automaton import Ids, SuffixAutomaton

_LARGEST_PENALTY = 1e30  # beside any logit it decides, and a float32 still holds it
_LARGEST_LOG = 88.7228391  # of a float32, as llama.cpp caps the exponent
_LEAST_GROWTH = 1.000001  # below it llama.cpp has no cap


class RepeatedRuns:
    """Which tokens would go on with a repeat at the end of a sequence, and what DRY takes off them.

    Of a window, only its tokens count: two automata take turns, each begun when the other holds a window, so that one
    always covers it and neither grows beyond two. Of the whole text (`dry_window` None) one automaton grows with it.

    A token costs as many steps as the penalty takes to reach its cap (about 160 at a growth of 1.75) and as there are
    tokens to penalise, never more than the vocabulary holds: on prose some 15 microseconds after 1,000 tokens, 25 after
    100,000, 50 after a million. Memory is some 100 bytes a token of the text, up to three times that a token of a
    window. To stand at the end of another text takes in all of it, some 4 microseconds a token.

    Args:
        sampling: what is read are its `dry_` settings.
        breakers: tokens that end a repeat; they are never penalised.
    """

    def __init__(self, sampling: Sampling, breakers: Collection[int]) -> None:
        self._sampling = sampling
        self._window = sampling.dry_window
        self._breakers = frozenset(breakers)
        self._longest = np.zeros(0, dtype=np.int64)  # by token, for `penalties`; all 0 in between
        self._clear(0)

    def restart(self, sequence: Sequence[int]) -> None:
        """Stand at the end of a sequence. One that goes on with what was taken in costs only what is new."""
        num_new = len(sequence) - self._num_seen
        held = sequence[self._num_seen - len(self._held) : self._num_seen]
        is_continued = num_new >= 0 and array("i", held) == self._held
        if not is_continued or (self._window is not None and num_new > self._window):
            num_new = len(sequence) if self._window is None else min(self._window, len(sequence))
            self._clear(len(sequence) - num_new)
        for token in sequence[len(sequence) - num_new :]:
            self.push(token)

    def push(self, token: int) -> None:
        """Take in one more token."""
        self._num_seen += 1
        self._held.append(token)
        for automaton in self._automata:
            if token in self._breakers:
                automaton.cut()
            else:
                automaton.push(token)
        if self._window is not None and self._automata[-1].num_tokens == self._window:
            if len(self._automata) == 2:
                del self._automata[0], self._held[: self._window]
            self._automata.append(SuffixAutomaton(self._reach))

    def penalties(self) -> tuple[Ids, npt.NDArray[np.float32]]:
        """Return tokens that would go on with a repeat, and what to take off their logits.

        A token may come several times, each time with the same penalty.
        """
        automaton = self._automata[0]
        since = 0 if self._window is None else max(0, automaton.num_tokens - self._window)
        tokens, lengths = automaton.followers(self._sampling.dry_allowed_length, since)
        if len(tokens) == 0:
            return tokens, lengths.astype(np.float32)
        if (highest := int(tokens.max())) >= len(self._longest):
            self._longest = np.zeros(highest + 1, dtype=np.int64)
        np.maximum.at(self._longest, tokens, lengths)
        longest = self._longest[tokens]
        self._longest[tokens] = 0
        return tokens, repeat_penalties(self._sampling, longest)

    def _clear(self, num_seen: int) -> None:
        self._num_seen = num_seen
        self._held = array("i")  # the tokens that the older automaton holds
        self._automata = [SuffixAutomaton(self._reach)]

    @property
    def _reach(self) -> int | None:
        """Longer repeats cost no more than those of this length; the token that follows counts too."""
        cap = _exponent_cap(self._sampling)
        return None if cap is None else self._sampling.dry_allowed_length + cap + 1


class KeptRuns:
    """The repeats of one text, kept from reply to reply while the settings of DRY stay the same."""

    def __init__(self) -> None:
        self._runs: RepeatedRuns | None = None
        self._settings: object = None

    def at(self, sampling: Sampling, breakers: Collection[int], sequence: Sequence[int]) -> RepeatedRuns:
        """Return the repeats at the end of a sequence."""
        dry = {name: value for name, value in asdict(sampling).items() if name.startswith("dry_")}
        if self._runs is None or self._settings != (dry, breakers):
            self._runs, self._settings = RepeatedRuns(sampling, breakers), (dry, breakers)
        self._runs.restart(sequence)
        return self._runs


def repeat_penalties(sampling: Sampling, lengths: Ids) -> npt.NDArray[np.float32]:
    """Return what DRY takes off a logit for repeats of so many tokens.

    `multiplier * base ** (length - allowed length)`, nothing below the allowed length (p-e-w 2024, "DRY: A modern
    repetition penalty", oobabooga/text-generation-webui#5677), with llama.cpp's cap on the exponent.
    """
    exponents, cap = lengths - sampling.dry_allowed_length, _exponent_cap(sampling)
    powers = np.power(sampling.dry_base, exponents if cap is None else np.minimum(exponents, cap), dtype=np.float64)
    penalties = np.minimum(sampling.dry_multiplier * powers, _LARGEST_PENALTY)
    return np.where(exponents < 0, 0.0, penalties).astype(np.float32)


def _exponent_cap(sampling: Sampling) -> int | None:
    if sampling.dry_base == 1:
        return 0
    return int(_LARGEST_LOG / math.log(sampling.dry_base)) if sampling.dry_base > _LEAST_GROWTH else None
