"""Looks for broken caches from outside, where an engine cannot be looked into: by logits and sizes alone.

Every probe compares two ways to the same tokens that must agree. What an engine offers for that is a `Probed`; how far
its own arithmetic differs between two such ways (batches of another size round otherwise) it says itself.

Shape letters: N tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Protocol

import numpy as np
import numpy.typing as npt

from models.findings import Fault, Finding

Logits = npt.NDArray[np.float64]

MOST_TOKENS = 6_144
"""Fed in chunks by one probe."""
_MOST_STEPS = 1_200
_CHUNK_TOKENS = 64
_STEPS_BEHIND = 48
_WORSE_NATS = 0.5
_GROWING_SHARE = 0.1


class Probed(Protocol):
    """One sequence of a loaded model.

    Attributes:
        window_tokens: W.
        capacity_tokens: that the largest bounded layer holds at most; W where none is bounded.
        is_bounded: whether every layer is.
        bytes_per_token: of a cache that keeps everything.
        tolerance_nats: divergence of two ways to the same tokens that rounding explains.
    """

    window_tokens: int
    capacity_tokens: int
    is_bounded: bool
    bytes_per_token: int
    tolerance_nats: float

    @property
    def reach_tokens(self) -> int | None:
        """The last so many tokens decide the next one, whatever came before; None where no number does."""
        ...

    def start(self) -> None:
        """Empty the cache."""
        ...

    def feed(self, tokens: Sequence[int]) -> Logits:
        """Feed tokens at once, or in the engine's own batches; return the logits of the last."""
        ...

    def take_up(self, tokens: Sequence[int]) -> tuple[int, Logits]:
        """Come to exactly these tokens from what is there; return how many needed no feeding, and the logits."""
        ...

    def kept(self) -> Sequence[int] | None:
        """Return the tokens still held where making room moves their positions; None where it moves none."""
        ...

    def uncached(self, tokens: Sequence[int]) -> Logits | None:
        """Return the last logits computed without any cache; None where the engine cannot."""
        ...

    def sizes(self) -> tuple[int, int]:
        """Return the bytes held and the bytes set aside."""
        ...


def examine_outside(probed: Probed, tokens: Sequence[int]) -> Iterator[Finding]:
    """Yield one finding a probe.

    Args:
        tokens: of a real text, repeated where more are needed.
    """
    text = list(tokens) * (-(-MOST_TOKENS // len(tokens)) + 1)
    yield check_bytes(probed, text)
    yield check_chunks(probed, text)
    yield check_reuse(probed, text)
    for check in (check_window, check_without_cache, check_shift):
        if (finding := check(probed, text)) is not None:
            yield finding


def check_bytes(probed: Probed, text: Sequence[int]) -> Finding:
    """Bytes held and set aside once layers are full, at twice that and ten times, or as far as a short probe gets."""
    window = min(probed.capacity_tokens, MOST_TOKENS // 2)
    lengths = sorted({window, 2 * window, min(10 * window, MOST_TOKENS)})
    probed.start()
    held, allocated = [], []
    for before, length in zip((0, *lengths), lengths, strict=False):
        probed.feed(text[before:length])
        now_held, now_allocated = probed.sizes()
        held.append(now_held)
        allocated.append(now_allocated)
    evidence = f"At {_listed(lengths)} tokens {_listed(held)} bytes are held and {_listed(allocated)} are set aside."
    growth = (held[-1] - held[-2]) / (lengths[-1] - lengths[-2]) if len(lengths) > 1 else 0.0
    grows = growth > _GROWING_SHARE * probed.bytes_per_token or allocated[-1] > allocated[0]
    return Finding("bounded", "Bytes by length", evidence, "appends for ever" if probed.is_bounded and grows else None)


def check_chunks(probed: Probed, text: Sequence[int]) -> Finding:
    """The same text in chunks and in single steps, before, at and past a full window."""
    lengths = _lengths_about(probed.window_tokens)
    at_once = _logits_at(probed, text, lengths, _CHUNK_TOKENS)
    by_step = _logits_at(probed, text, lengths, 1)
    worst = max(divergence(one, other) for one, other in zip(at_once, by_step, strict=True))
    evidence = (
        f"After {_listed(lengths)} tokens, chunks and single steps predict the next one within {worst:.1e} nats"
        f"{_allowed(probed)}."
    )
    return Finding("exact", "Chunks and single steps", evidence, _fault(probed, worst, "chunks differ from steps"))


def check_reuse(probed: Probed, text: Sequence[int]) -> Finding:
    """What is taken up from an earlier text equals reading the new one from its start."""
    before = max(8, min(probed.capacity_tokens - 20, MOST_TOKENS // 4))
    past = min(2 * probed.capacity_tokens + 8, MOST_TOKENS // 2)
    worst, told = 0.0, []
    for length, num_shared in ((before, before), (before, before - 6), (past, past), (past, past - 6)):
        wanted = [*text[:num_shared], *text[length + 20 : length + 23]]
        probed.start()
        probed.feed(text[:length])
        num_reused, warm = probed.take_up(wanted)
        probed.start()
        worst = max(worst, divergence(probed.feed(wanted), warm))
        told.append(f"{num_reused:,} of {num_shared:,}")
    evidence = (
        f"Of shared beginnings {', '.join(told)} tokens were taken up; the next token is then predicted within "
        f"{worst:.1e} nats of a fresh start{_allowed(probed)}."
    )
    return Finding("exact", "Taking up a text", evidence, _fault(probed, worst, "reuse differs from a fresh start"))


def check_window(probed: Probed, text: Sequence[int]) -> Finding | None:
    """A token beyond the reach of all layers together changes nothing, one within the window does."""
    reach = probed.reach_tokens
    if reach is None or reach + 8 > MOST_TOKENS:
        return None
    length = reach + 8
    plain = _fed(probed, text[:length])
    beyond = divergence(plain, _fed(probed, _changed(text[:length], 3)))
    within = divergence(plain, _fed(probed, _changed(text[:length], length - 2)))
    evidence = (
        f"Another token {length - 4:,} places back, beyond the {reach:,} that all layers reach together, moves the "
        f"prediction by {beyond:.1e} nats; another one just before the last, by {within:.1e}."
    )
    fault: Fault | None = _fault(probed, beyond, "sees beyond the window")
    return Finding("exact", "Tokens seen", evidence, fault or ("misses part of the window" if within == 0 else None))


def check_without_cache(probed: Probed, text: Sequence[int]) -> Finding | None:
    """The cache gives what the whole text gives without one."""
    lengths = _lengths_about(probed.window_tokens)
    if probed.uncached(text[:1]) is None:
        return None
    worst = 0.0
    for length, cached in zip(lengths, _logits_at(probed, text, lengths, 1), strict=True):
        expected = probed.uncached(text[:length])
        assert expected is not None
        worst = max(worst, divergence(expected, cached))
    evidence = (
        f"After {_listed(lengths)} tokens, the next one is predicted within {worst:.1e} nats of the model run without "
        f"a cache{_allowed(probed)}."
    )
    return Finding("exact", "With and without a cache", evidence, _fault(probed, worst, "differs from no cache"))


def check_shift(probed: Probed, text: Sequence[int]) -> Finding | None:
    """Right after positions were moved to make room, text is predicted as well as from a fresh start on what is left.

    Not to the digit: what is left was read with more before it.
    """
    probed.start()
    length = 0
    if probed.kept() is None:
        return None
    while len(kept := probed.kept() or ()) == length:
        if length >= MOST_TOKENS:
            return None
        piece = text[length : length + _CHUNK_TOKENS]
        probed.feed(piece)
        length += len(piece)
    following = text[length : length + _STEPS_BEHIND]
    moved = _losses(probed, following)
    probed.start()
    probed.feed(kept)
    fresh = _losses(probed, following)
    worse = fmean(moved) - fmean(fresh)
    evidence = (
        f"After {length:,} tokens, of which {len(kept):,} are left at moved positions, the next {len(following)} cost "
        f"{fmean(moved):.3f} nats each; with the same tokens read anew {fmean(fresh):.3f}."
    )
    return Finding("exact", "Positions after making room", evidence, "wrong positions" if worse > _WORSE_NATS else None)


def divergence(one: Logits, other: Logits) -> float:
    """Return the Kullback-Leibler divergence of two next-token distributions, in nats."""
    log_one, log_other = _log_softmax(one), _log_softmax(other)
    return max(0.0, float((np.exp(log_one) * (log_one - log_other)).sum()))


def _log_softmax(logits: Logits) -> Logits:
    shifted = logits.astype(np.float64) - logits.max()
    found: Logits = shifted - np.log(np.exp(shifted).sum())
    return found


def _lengths_about(window: int) -> list[int]:
    """Return lengths before, at and past a full window, as far as single steps are affordable."""
    wanted = (max(1, window // 2), window, window + 1, 2 * window + 3)
    return sorted({length for length in wanted if length <= _MOST_STEPS} or {_MOST_STEPS})


def _logits_at(probed: Probed, text: Sequence[int], lengths: Sequence[int], chunk: int) -> list[Logits]:
    probed.start()
    found, fed = [], 0
    for length in lengths:
        while fed < length:
            piece = text[fed : min(fed + chunk, length)]
            logits = probed.feed(piece)
            fed += len(piece)
        found.append(logits)
    return found


def _fed(probed: Probed, tokens: Sequence[int]) -> Logits:
    probed.start()
    return probed.feed(tokens)


def _losses(probed: Probed, following: Sequence[int]) -> list[float]:
    """Return the loss of each of the tokens but the first, fed one by one."""
    return [-float(_log_softmax(probed.feed([token]))[target]) for token, target in pairwise(following)]


def _changed(tokens: Sequence[int], place: int) -> list[int]:
    """Put another token of the text in one place."""
    changed = list(tokens)
    changed[place] = next(token for token in changed if token != changed[place])
    return changed


def _fault(probed: Probed, nats: float, fault: Fault) -> Fault | None:
    return fault if nats > probed.tolerance_nats else None


def _allowed(probed: Probed) -> str:
    return f" (rounding alone: up to {probed.tolerance_nats:.0e})"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)
