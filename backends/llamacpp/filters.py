"""The filters of `backends.requests.Sampling`, over numpy: dropped tokens leave the arrays, the rest keep their order.

Same definitions and sources as `models.sampling_filters`, which see. Of equal tokens at a limit those with the lowest
ids stay.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from backends.draws import ROUNDING

Ids = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]


def top_sigma(ids: Ids, logits: Logits, num_sigmas: float) -> tuple[Ids, Logits]:
    """Keep logits within `num_sigmas` standard deviations of the largest."""
    scores = logits.astype(np.float64)
    possible = scores[scores != -math.inf]
    kept = scores >= possible.max() - num_sigmas * possible.std()
    return ids[kept], logits[kept]


def top_k(ids: Ids, logits: Logits, count: int | None) -> tuple[Ids, Logits]:
    """Keep the `count` largest logits."""
    if count is None or count >= len(ids):
        return ids, logits
    least = np.partition(logits, len(logits) - count)[len(logits) - count]
    kept = logits > least
    kept[np.flatnonzero(logits == least)[: count - np.count_nonzero(kept)]] = True
    return ids[kept], logits[kept]


def typical(ids: Ids, scores: Scores, typical_p: float) -> tuple[Ids, Scores]:
    """Keep the smallest set closest to the expected surprise whose probability exceeds `typical_p`."""
    log_p = log_softmax(scores)
    p = np.exp(log_p)
    entropy = -(p * np.where(p == 0, 0, log_p)).sum()
    order = np.abs(log_p + entropy).argsort(kind="stable")
    reached = p[order].cumsum()
    return _where(_first(order, 1 + np.count_nonzero(reached[:-1] <= typical_p + ROUNDING)), ids, scores)


def top_p(ids: Ids, scores: Scores, share: float) -> tuple[Ids, Scores]:
    """Keep the smallest set of most likely tokens whose probability reaches `share`.

    All tokens below (1 - share) / V together are less than 1 - share, so those above reach it: they alone are sorted.
    """
    log_p = log_softmax(scores)
    likely = np.flatnonzero(log_p >= math.log((1 - share) / (2 * len(ids))))
    order = likely[(-scores[likely]).argsort(kind="stable")]
    reached = np.exp(log_p[order]).cumsum()
    kept = np.zeros(len(ids), dtype=bool)
    kept[order[: 1 + np.count_nonzero(reached[:-1] < share - ROUNDING)]] = True
    return _where(kept, ids, scores)


def min_p(ids: Ids, scores: Scores, fraction: float) -> tuple[Ids, Scores]:
    """Keep tokens of at least `fraction` of the largest probability; 0 keeps all."""
    return (ids, scores) if fraction <= 0 else _where(scores >= scores.max() + math.log(fraction), ids, scores)


def exclude_top_choices(ids: Ids, scores: Scores, threshold: float) -> tuple[Ids, Scores]:
    """Drop all tokens of at least `threshold` probability but the least likely of them."""
    above = (np.exp(log_softmax(scores)) >= threshold - ROUNDING) & (scores != -math.inf)
    if threshold > 0.5 or not above.any():
        return ids, scores
    return _where(scores <= scores[above].min(), ids, scores)


def within_surprise(ids: Ids, log_p: Scores, most_bits: float) -> tuple[Ids, Scores]:
    """Keep tokens of a surprise up to `most_bits`, and the most likely in any case."""
    return _where((-log_p / math.log(2) <= most_bits) | (log_p >= log_p.max()), ids, log_p)


def log_softmax(scores: Scores) -> Scores:
    """Return log probabilities; -inf stays so."""
    shifted = scores - scores.max()
    log_p: Scores = shifted - math.log(np.exp(shifted).sum())
    return log_p


def _where(kept: npt.NDArray[np.bool_], ids: Ids, scores: Scores) -> tuple[Ids, Scores]:
    return ids[kept], scores[kept]


def _first(order: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.bool_]:
    kept = np.zeros(len(order), dtype=bool)
    kept[order[:count]] = True
    return kept
