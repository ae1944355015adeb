"""What penalties look back on, on the device, in storage of fixed size and address so that a CUDA graph can hold it.

Shape letters: V vocabulary, N tokens of a window.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from backends.repeats import repeat_lengths, repeat_penalties
from backends.requests import Sampling


class TokenCounts:
    """How often each token came among the last `window`; in the whole sequence if that is None.

    Attributes:
        counts_V: int32.
    """

    def __init__(self, window: int | None, vocab_size: int, device: torch.device) -> None:
        self._counts = torch.zeros(vocab_size + 1, dtype=torch.int32, device=device)  # the last counts empty places
        self.counts_V = self._counts[:vocab_size]
        self._ones = torch.ones(1, dtype=torch.int32, device=device)
        self._empty = vocab_size
        self._ids_N = None if window is None else torch.full((window,), vocab_size, dtype=torch.int64, device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)

    def restart(self, sequence: Sequence[int]) -> None:
        """Forget all and take in a sequence."""
        past = sequence if self._ids_N is None else sequence[-len(self._ids_N) :]
        ids = torch.tensor(past, dtype=torch.int64, device=self._counts.device)
        self._counts.zero_()
        self._counts.scatter_add_(0, ids, self._ones.expand(len(ids)))
        if self._ids_N is not None:
            self._ids_N.fill_(self._empty)
            self._ids_N[: len(ids)] = ids
            self._place.fill_(len(ids) % len(self._ids_N))

    def push(self, token_1: Tensor) -> None:
        """Take in one more token, [1]; an invalid one counts as token 0."""
        token_1 = token_1.clamp(min=0)
        if self._ids_N is not None:
            self._counts.scatter_add_(0, self._ids_N.gather(0, self._place), -self._ones)
            self._ids_N.scatter_(0, self._place, token_1)
            self._place.add_(1).remainder_(len(self._ids_N))
        self._counts.scatter_add_(0, token_1, self._ones)

    def penalise(self, logits_BV: Tensor, frequency: float, presence: float) -> Tensor:
        """Take `count * frequency + (count > 0) * presence` off every logit, as llama.cpp and OpenAI define both."""
        counts_V = self.counts_V.to(logits_BV.dtype)
        return logits_BV - (counts_V * frequency + (counts_V > 0).to(logits_BV.dtype) * presence)


class RepeatedRuns:
    """How long a repeat each place in the last `dry_window` tokens ends, for DRY.

    One more token makes of a repeat of n at a place one of n + 1 at the next, where that holds the same token; so a
    step costs a few operations over the window, where a search would start anew.

    Args:
        breakers: tokens that end a repeat; they are never penalised.
    """

    def __init__(self, sampling: Sampling, breakers: Sequence[int], vocab_size: int, device: torch.device) -> None:
        window = sampling.dry_window
        self._breakers = frozenset(breakers)
        self._is_breaker_V = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        if breakers:
            self._is_breaker_V[torch.tensor(list(breakers), device=device)] = True
        self._penalties = torch.tensor(repeat_penalties(sampling), dtype=torch.float32, device=device)
        self._places_N = torch.arange(window, device=device)
        self._ids_N = torch.full((window,), -1, dtype=torch.int64, device=device)
        self._lengths_N = torch.zeros(window, dtype=torch.int64, device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._zero = torch.zeros(1, dtype=torch.int64, device=device)

    def restart(self, sequence: Sequence[int]) -> None:
        """Forget all and take in a sequence."""
        past = sequence[-len(self._ids_N) :]
        self._ids_N.fill_(-1)
        self._lengths_N.zero_()
        self._ids_N[: len(past)] = torch.tensor(past, dtype=torch.int64, device=self._ids_N.device)
        self._lengths_N[: len(past)] = torch.tensor(repeat_lengths(past, self._breakers), device=self._ids_N.device)
        self._place.fill_(len(past) % len(self._ids_N))

    def push(self, token_1: Tensor) -> None:
        """Take in one more token, [1]; an invalid one counts as token 0."""
        token_1 = token_1.clamp(min=0)
        goes_on_N = (self._ids_N == token_1) & ~self._is_breaker_V[token_1]
        self._lengths_N.copy_(torch.where(goes_on_N, self._lengths_N.roll(1) + 1, 0))
        self._lengths_N.scatter_(0, self._place, self._zero)
        self._ids_N.scatter_(0, self._place, token_1)
        self._place.add_(1).remainder_(len(self._ids_N))

    def penalise(self, logits_BV: Tensor) -> Tensor:
        """Take off each token what `backends.repeats.repeat_penalties` says of the longest repeat it would extend."""
        held_N = (self._places_N - self._place) % len(self._ids_N) + 1  # tokens of the window up to each place
        penalty_N = self._penalties[torch.minimum(self._lengths_N, held_N)]
        next_N = self._ids_N.roll(-1).clamp(min=0)  # after the newest comes nothing; its repeat is 0 long
        penalty_V = torch.zeros_like(logits_BV[0], dtype=torch.float32).scatter_reduce(0, next_N, penalty_N, "amax")
        return logits_BV - penalty_V.masked_fill(self._is_breaker_V, 0)
