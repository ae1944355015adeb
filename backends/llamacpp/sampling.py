"""Drawing the next token from llama.cpp's logits, to the letter of `backends.requests.Sampling`.

None of llama.cpp's own samplers: its filters leave it open which of several equal tokens they keep, its penalty walks
over the whole vocabulary and has a fixed window, and its draw keeps a random state, where a number from a counter lets
a continued reply go on as if never stopped. The filters are those of `backends.llamacpp.filters`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.draws import second
from backends.errors import RingsideError
from backends.llamacpp import filters
from backends.llamacpp.history import RecentTokens
from backends.repeats import KeptRuns
from backends.requests import Sampling
from backends.token_rules import NO_RULES, TokenRules


class Sampler:
    """Draws tokens for one reply.

    Args:
        sampling: the settings.
        vocab_size: V.
        tokens: the sequence so far, for penalties.
        rules: tokens with a bias, and DRY's breakers.
        kept_runs: DRY's memory of earlier replies, taken up where the sequence goes on.
    """

    def __init__(
        self,
        sampling: Sampling,
        vocab_size: int,
        tokens: Sequence[int] = (),
        rules: TokenRules = NO_RULES,
        kept_runs: KeptRuns | None = None,
    ) -> None:
        self._sampling = sampling
        window = sampling.repetition_window
        self._recent: RecentTokens | None = None
        if sampling.repetition_penalty != 1 or sampling.counts_tokens:
            self._recent = RecentTokens(window, tokens if window is None else tokens[-window:])
        self._runs = None
        if sampling.dry_multiplier:
            self._runs = (kept_runs or KeptRuns()).at(sampling, rules.breakers, tokens)
        self._bias_ids = np.array([token for token, _ in rules.biases], dtype=np.int32)
        self._bias = np.array([bias for _, bias in rules.biases], dtype=np.float32)
        self._ids = np.arange(vocab_size, dtype=np.int32)
        self._most_bits = None if sampling.mirostat_tau is None else 2 * sampling.mirostat_tau

    def push(self, token: int) -> None:
        """Take in a token of the sequence, drawn or not."""
        if self._recent is not None:
            self._recent.push(token)
        if self._runs is not None:
            self._runs.push(token)

    def draw(
        self, logits_V: npt.NDArray[np.float32], uniform: float, allowed_V: npt.NDArray[np.bool_] | None = None
    ) -> int:
        """Draw one token.

        Args:
            logits_V: changed in place by everything that comes before the filters.
            uniform: in [0, 1); not read when greedy.
            allowed_V: tokens that a constraint lets come, shorter than the vocabulary where its end may not.

        Raises:
            RingsideError: the logits hold NaN or infinity.
        """
        self._adjust(logits_V, allowed_V)
        best = int(logits_V.argmax())  # NaN counts as the largest; the lowest id wins a tie
        if not np.isfinite(logits_V[best]):
            raise RingsideError(
                "The model's output is not a number.", "Its file may be damaged; if not, choose another quantisation."
            )
        sampling = self._sampling
        if sampling.temperature == 0:
            return best
        if self._most_bits is not None:
            return self._draw_by_surprise(logits_V, self._most_bits, uniform)
        ids, scores = self._filtered(logits_V, uniform)
        return _inverse_cdf(ids, scores, sampling.temperature, uniform)

    def _adjust(self, logits_V: npt.NDArray[np.float32], allowed_V: npt.NDArray[np.bool_] | None) -> None:
        """Apply the constraint, logit bias, penalties and DRY."""
        if allowed_V is not None:
            logits_V[: len(allowed_V)][~allowed_V[: len(logits_V)]] = -np.inf
            logits_V[len(allowed_V) :] = -np.inf
        logits_V[self._bias_ids] += self._bias
        if self._recent is not None:
            self._penalise(logits_V, self._recent)
        if self._runs is not None:
            ids, penalties = self._runs.penalties()
            logits_V[ids] = logits_V[ids] - penalties  # not -=: an id may come twice

    def _penalise(self, logits_V: npt.NDArray[np.float32], recent: RecentTokens) -> None:
        sampling = self._sampling
        penalty = np.float32(sampling.repetition_penalty)
        ids = recent.ids()
        picked = logits_V[ids]
        picked = np.where(picked > 0, picked / penalty, picked * penalty)
        presence, frequency = np.float32(sampling.presence_penalty), np.float32(sampling.frequency_penalty)
        logits_V[ids] = picked - (recent.counts() * frequency + presence)

    def _filtered(
        self, logits_V: npt.NDArray[np.float32], uniform: float
    ) -> tuple[filters.Ids, npt.NDArray[np.float64]]:
        """Return what the filters leave: ids and logits, in token-id order."""
        sampling = self._sampling
        ids, logits = self._ids, logits_V
        if sampling.top_n_sigma is not None:
            ids, logits = filters.top_sigma(ids, logits, sampling.top_n_sigma)
        ids, logits = filters.top_k(ids, logits, sampling.top_k)
        scores = logits.astype(np.float64)
        if sampling.typical_p < 1:
            ids, scores = filters.typical(ids, scores, sampling.typical_p)
        if sampling.top_p < 1:
            ids, scores = filters.top_p(ids, scores, sampling.top_p)
        ids, scores = filters.min_p(ids, scores, sampling.min_p)
        if second(uniform) < sampling.xtc_probability:
            ids, scores = filters.exclude_top_choices(ids, scores, sampling.xtc_threshold)
        return ids, scores

    def _draw_by_surprise(self, logits_V: npt.NDArray[np.float32], most_bits: float, uniform: float) -> int:
        """Draw by mirostat 2 and learn from the draw; see `models.token_sampler.Mirostat`."""
        sampling = self._sampling
        assert sampling.mirostat_tau is not None
        with np.errstate(over="ignore"):
            log_p = filters.log_softmax((logits_V.astype(np.float64) - float(logits_V.max())) / sampling.temperature)
        ids, log_p = filters.within_surprise(self._ids, log_p, most_bits)
        log_p = filters.log_softmax(log_p)
        token = _inverse_cdf(ids, log_p, 1.0, uniform)
        surprise = -float(log_p[np.searchsorted(ids, token)]) / math.log(2)
        self._most_bits = most_bits - sampling.mirostat_eta * (surprise - sampling.mirostat_tau)
        return token


def _inverse_cdf(
    ids: npt.NDArray[np.int32], scores: npt.NDArray[np.floating[Any]], temperature: float, uniform: float
) -> int:
    """Return the first token, in id order, at which the cumulative probability exceeds the uniform number."""
    shifted = scores.astype(np.float64) - float(scores.max())  # the peak first: no overflow at tiny temperatures
    with np.errstate(over="ignore"):
        cumulative = np.exp(shifted / temperature).cumsum()
    # Rounding may lift the target to the total itself; then the last token that has any weight is meant.
    target = min(uniform * cumulative[-1], np.nextafter(cumulative[-1], 0.0))
    return int(ids[np.searchsorted(cumulative, target, side="right")])
