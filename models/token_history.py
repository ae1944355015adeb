"""What penalties look back on, on the device, in storage of fixed size and address so that a CUDA graph can hold it.

Shape letters: V vocabulary, N tokens of a window.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from backends.repeats import RepeatedRuns
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


class RepeatPenalties:
    """What DRY takes off each logit, counted on the host (`backends.repeats`) and held at one place on the device.

    Args:
        breakers: tokens that end a repeat; they are never penalised.
    """

    def __init__(self, sampling: Sampling, breakers: Sequence[int], vocab_size: int, device: torch.device) -> None:
        self._runs = RepeatedRuns(sampling, breakers)
        self._penalty_V = torch.zeros(vocab_size, dtype=torch.float32, device=device)
        self._penalised: Tensor | None = None

    def restart(self, sequence: Sequence[int]) -> None:
        """Stand at the end of a sequence."""
        self._runs.restart(sequence)

    def push(self, token: int) -> None:
        """Take in one more token."""
        self._runs.push(token)

    def set_next(self) -> None:
        """Bring what the next draw is penalised by to the device."""
        if self._penalised is not None:
            self._penalty_V[self._penalised] = 0
            self._penalised = None
        tokens, penalties = self._runs.penalties()
        if len(tokens):
            device = self._penalty_V.device
            self._penalised = torch.from_numpy(tokens).to(device)
            self._penalty_V[self._penalised] = torch.from_numpy(penalties).to(device)

    def penalise(self, logits_BV: Tensor) -> Tensor:
        """Take the penalties off."""
        return logits_BV - self._penalty_V
