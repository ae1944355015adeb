"""One decode step, from a token to the next: the decoder, the settings of sampling, and the draw.

On a CPU the step simply runs. On CUDA the very same step, over tensors that stay where they are, is recorded as a graph
(`models.cuda_graph`). The one number that leaves the device is the token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from backends.requests import Sampling
from backends.token_rules import NO_RULES, TokenRules
from models.cuda_graph import GraphedStep
from models.ring_cache import KVCache
from models.text_model import TextCache, TextModel
from models.token_sampler import TokenSampler


class TokenStep:
    """Feeds a token to a cache of one row and draws the next.

    Args:
        model, cache: where the token is fed.
        sampling: how the next is drawn; its seed is not read.
        rules: tokens with a bias, and those that break repeats.
        constrained: whether `allow` says before each draw which tokens may come.
    """

    def __init__(
        self,
        model: TextModel,
        cache: TextCache,
        sampling: Sampling,
        rules: TokenRules = NO_RULES,
        constrained: bool = False,
    ) -> None:
        device = cache.device
        self._model = model
        self._cache = cache
        self._sampler = TokenSampler(sampling, rules, model.vocab_size, device, constrained)
        self._tokens_B = torch.zeros(1, dtype=torch.int64, device=device)
        self._drawn_B = torch.zeros(1, dtype=torch.int64, device=device)
        self._logits_BV: Tensor | None = None
        can_be_captured = device.type == "cuda" and model.can_be_captured(cache)
        self._graph: GraphedStep | None = None
        if can_be_captured and isinstance(cache, KVCache):  # the only cache that counts on the device
            self._graph = GraphedStep(self._feed_and_draw, cache)

    @torch.inference_mode()
    def begin(self, sequence: Sequence[int]) -> None:
        """Tell what text the draws continue, for penalties: at least one token."""
        self._sampler.restart(sequence)

    def allow(self, allowed_V: Tensor) -> None:
        """See `TokenSampler.allow`."""
        self._sampler.allow(allowed_V)

    @torch.inference_mode()
    def feed(self, token: int, number: float) -> int:
        """Feed `token`; return the next, drawn with `number`, or `sampling.INVALID_TOKEN`.

        Args:
            number: from `backends.draws.uniform`.
        """
        self._tokens_B.fill_(token)
        self._sampler.set_number(number)
        if self._graph is None:
            self._feed_and_draw()
        else:
            self._graph.run()
        return int(self._drawn_B)

    @torch.inference_mode()
    def draw_from(self, logits_BV: Tensor, number: float) -> int:
        """Draw a token from logits of an earlier step, feeding nothing."""
        self._sampler.set_number(number)
        self._draw(logits_BV)
        return int(self._drawn_B)

    @torch.inference_mode()
    def logits(self) -> Tensor | None:
        """Return a copy of the logits after the last token fed, float32 [1, V]; None before there are any."""
        return None if self._logits_BV is None else self._logits_BV.clone()

    def _feed_and_draw(self) -> None:
        self._logits_BV = self._model.decode_step(self._tokens_B, self._cache, static=self._graph is not None).float()
        self._draw(self._logits_BV)

    def _draw(self, logits_BV: Tensor) -> None:
        self._drawn_B.copy_(self._sampler.draw(logits_BV))
