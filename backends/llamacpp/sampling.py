"""Drawing the next token from llama.cpp's logits, to the letter of `backends.requests.Sampling`.

Top-k, top-p and min-p are llama.cpp's own samplers, which sort no more of a large vocabulary than they need. The
repetition penalty and the draw are ours: llama.cpp's penalty walks over the whole vocabulary and has a fixed window;
its draw keeps a random state, where a number from a counter lets a continued reply go on as if never stopped.
"""

from __future__ import annotations

import ctypes
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as lib

from backends.errors import RingsideError
from backends.requests import Sampling

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("probability", np.float32)])
assert _CANDIDATE.itemsize == ctypes.sizeof(lib.llama_token_data)


class RecentTokens:
    """The distinct tokens among the last `window`; all of them if `window` is None."""

    def __init__(self, window: int | None, tokens: Iterable[int] = ()) -> None:
        self._window = window
        self._counts: Counter[int] = Counter()
        self._order: deque[int] = deque()
        for token in tokens:
            self.push(token)

    def push(self, token: int) -> None:
        """Take in one more token."""
        self._counts[token] += 1
        if self._window is None:
            return
        self._order.append(token)
        if len(self._order) > self._window:
            oldest = self._order.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def ids(self) -> npt.NDArray[np.int32]:
        """Return the distinct ids, in no order."""
        return np.fromiter(self._counts, dtype=np.int32, count=len(self._counts))


class Sampler:
    """Draws tokens for one reply. Close it: it holds memory of the library.

    Args:
        sampling: the settings.
        vocab_size: V.
        recent: what the repetition penalty looks at; the caller pushes to it.
        banned: tokens never to be drawn.
    """

    def __init__(self, sampling: Sampling, vocab_size: int, recent: RecentTokens, banned: Iterable[int] = ()) -> None:
        self._sampling = sampling
        self._recent = recent
        self._banned = np.fromiter(banned, dtype=np.int32)
        self._candidates = np.zeros(vocab_size, dtype=_CANDIDATE)
        self._ids = np.arange(vocab_size, dtype=np.int32)
        self._chain = _filter_chain(sampling)

    def close(self) -> None:
        if self._chain is not None:
            lib.llama_sampler_free(self._chain)
            self._chain = None

    def draw(self, logits_V: npt.NDArray[np.float32], uniform: float) -> int:
        """Draw one token.

        Args:
            logits_V: changed in place by the penalty and the ban.
            uniform: in [0, 1); not read when greedy.

        Raises:
            RingsideError: the logits hold NaN or infinity.
        """
        self._penalise(logits_V)
        logits_V[self._banned] = -np.inf
        best = int(logits_V.argmax())  # NaN counts as the largest; the lowest id wins a tie
        if not np.isfinite(logits_V[best]):
            raise RingsideError(
                "The model's output is not a number.", "Its file may be damaged; if not, choose another quantisation."
            )
        if self._sampling.temperature == 0:
            return best
        ids, scores = self._filtered(logits_V)
        return _inverse_cdf(ids, scores, self._sampling.temperature, uniform)

    def _penalise(self, logits_V: npt.NDArray[np.float32]) -> None:
        penalty = np.float32(self._sampling.repetition_penalty)
        if penalty == 1:
            return
        ids = self._recent.ids()
        picked = logits_V[ids]
        logits_V[ids] = np.where(picked > 0, picked / penalty, picked * penalty)

    def _filtered(self, logits_V: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Return what top-k, top-p and min-p leave: ids and logits, in token-id order."""
        if self._chain is None:
            return self._ids, logits_V
        self._candidates["id"] = self._ids
        self._candidates["logit"] = logits_V
        data = self._candidates.ctypes.data_as(lib.llama_token_data_p)
        kept: Any = lib.llama_token_data_array(data=data, size=len(self._ids), selected=-1, sorted=False)
        lib.llama_sampler_apply(self._chain, ctypes.byref(kept))
        # A sampler may answer with an array of its own, so the result is read where the library points.
        address = ctypes.addressof(kept.data.contents)
        buffer = (lib.llama_token_data * kept.size).from_address(address)
        candidates = np.frombuffer(buffer, dtype=_CANDIDATE)
        order = candidates["id"].argsort()
        return candidates["id"][order], candidates["logit"][order]


def _filter_chain(sampling: Sampling) -> Any:
    """Return llama.cpp's samplers in the documented order; None where they would keep everything."""
    steps = []
    if sampling.top_k is not None:
        steps.append(lib.llama_sampler_init_top_k(sampling.top_k))
    if sampling.top_p < 1:
        steps.append(lib.llama_sampler_init_top_p(sampling.top_p, 1))
    if sampling.min_p > 0:
        steps.append(lib.llama_sampler_init_min_p(sampling.min_p, 1))
    if not steps or sampling.temperature == 0:
        for step in steps:
            lib.llama_sampler_free(step)
        return None
    params = lib.llama_sampler_chain_default_params()
    params.no_perf = True
    chain = lib.llama_sampler_chain_init(params)
    for step in steps:
        lib.llama_sampler_chain_add(chain, step)
    return chain


def _inverse_cdf(
    ids: npt.NDArray[np.int32], scores: npt.NDArray[np.float32], temperature: float, uniform: float
) -> int:
    """Return the first token, in id order, at which the cumulative probability exceeds the uniform number."""
    shifted = scores.astype(np.float64) - float(scores.max())  # the peak first: no overflow at tiny temperatures
    with np.errstate(over="ignore"):
        cumulative = np.exp(shifted / temperature).cumsum()
    # Rounding may lift the target to the total itself; then the last token that has any weight is meant.
    target = min(uniform * cumulative[-1], np.nextafter(cumulative[-1], 0.0))
    return int(ids[np.searchsorted(cumulative, target, side="right")])
