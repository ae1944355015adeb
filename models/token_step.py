"""One decode step, from a token to the next: the decoder, the settings of sampling, and the draw.

On a CPU the step simply runs. On CUDA the very same step, over tensors that stay where they are, is recorded as a graph
(`models.cuda_graph`), once for each number of rows. The one number a row that leaves the device is the token.

Every row has a sampler of its own, the very one it would have alone. Shape letters: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from backends.requests import Sampling
from backends.token_rules import NO_RULES, TokenRules
from models.cuda_graph import CudaRecorder, GraphedStep, Recorder
from models.ring_cache import KVCache
from models.text_model import TextCache, TextModel
from models.token_sampler import TokenSampler


class TokenStep:
    """Feeds a token a row to a cache and draws the next of each.

    Args:
        model, cache: where the tokens are fed.
        sampling: how the next are drawn; its seed is not read.
        rules: tokens with a bias, and those that break repeats.
        constrained: whether `allow` says before each draw which tokens may come.
        num_rows: B, as many as the cache has.
        recorder: makes graphs of the step; None takes the device's, and none on a CPU.
    """

    def __init__(
        self,
        model: TextModel,
        cache: TextCache,
        sampling: Sampling,
        rules: TokenRules = NO_RULES,
        constrained: bool = False,
        num_rows: int = 1,
        recorder: Recorder | None = None,
    ) -> None:
        device = cache.device
        self._model = model
        self._cache = cache
        self._samplers = [TokenSampler(sampling, rules, model.vocab_size, device, constrained) for _ in range(num_rows)]
        self._tokens_B = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._drawn_B = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._logits_BV: Tensor | None = None
        if recorder is None and device.type == "cuda":
            recorder = CudaRecorder()
        self._graph: GraphedStep | None = None
        if recorder and isinstance(cache, KVCache) and model.can_be_captured(cache):  # no other counts on the device
            self._graph = GraphedStep(cache, recorder)

    @property
    def refused(self) -> str:
        """Why the device would not record the step, so that it runs eagerly; empty where it did or need not."""
        return "" if self._graph is None else self._graph.refused

    @torch.inference_mode()
    def begin(self, sequence: Sequence[int]) -> None:
        """Tell what text the draws of every row continue, for penalties: at least one token."""
        for sampler in self._samplers:
            sampler.restart(sequence)

    def allow(self, allowed_V: Tensor, row: int = 0) -> None:
        """See `TokenSampler.allow`."""
        self._samplers[row].allow(allowed_V)

    def feed(self, token: int, number: float) -> int:
        """`feed_rows` for a cache of one row."""
        return self.feed_rows((token,), (number,))[0]

    @torch.inference_mode()
    def feed_rows(self, tokens: Sequence[int], numbers: Sequence[float]) -> list[int]:
        """Feed a token a row; return the next of each, drawn with its number, or `sampling.INVALID_TOKEN`.

        Args:
            numbers: from `backends.draws.uniform`.
        """
        for row, token in enumerate(tokens):
            self._tokens_B[row].fill_(token)
        self._prepare(numbers)
        if self._graph is None:
            self._feed_and_draw()
        else:
            self._graph.run(self._feed_and_draw)
        return self._drawn()

    @torch.inference_mode()
    def draw_from(self, logits_1V: Tensor, numbers: Sequence[float]) -> list[int]:
        """Draw a token a row from the logits of one earlier step, feeding nothing."""
        self._prepare(numbers)
        self._draw(logits_1V.expand(len(numbers), -1))
        return self._drawn()

    @torch.inference_mode()
    def logits(self) -> Tensor | None:
        """Return a copy of the logits after the last tokens fed, float32 [B, V]; None before there are any."""
        return None if self._logits_BV is None else self._logits_BV.clone()

    def _prepare(self, numbers: Sequence[float]) -> None:
        for sampler, number in zip(self._samplers, numbers, strict=True):
            sampler.prepare(number)

    def _drawn(self) -> list[int]:
        drawn: list[int] = self._drawn_B.tolist()
        for sampler, token in zip(self._samplers, drawn, strict=True):
            sampler.note_drawn(token)
        return drawn

    def _feed_and_draw(self) -> None:
        self._logits_BV = self._model.decode_step(self._tokens_B, self._cache, static=self._graph is not None).float()
        self._draw(self._logits_BV)

    def _draw(self, logits_BV: Tensor) -> None:
        for row, sampler in enumerate(self._samplers):
            self._drawn_B[row : row + 1].copy_(sampler.draw(logits_BV[row : row + 1]))
