"""All of `backends.requests.Sampling` for one sequence, with what it remembers from draw to draw, on the device.

Every tensor stays where it is, so that a draw can be recorded in a CUDA graph. Shape letters: B rows (one here), V
vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from backends.draws import second
from backends.requests import Sampling
from backends.token_rules import TokenRules
from models.sampling import RecentTokens, draw, inverse_cdf, penalise_repetition
from models.sampling_filters import keep_within_surprise, without_dropped
from models.token_history import RepeatPenalties, TokenCounts


class TokenSampler:
    """Draws the tokens of one sequence.

    Args:
        sampling: its seed is not read.
        rules: tokens with a bias, and DRY's breakers.
        constrained: whether `allow` says before each draw which tokens may come.
    """

    def __init__(
        self,
        sampling: Sampling,
        rules: TokenRules,
        vocab_size: int,
        device: torch.device,
        constrained: bool = False,
    ) -> None:
        self._sampling = sampling
        self._number_B = torch.zeros(1, dtype=torch.float64, device=device)
        self._chance_B = torch.zeros(1, dtype=torch.float64, device=device)
        self._bias_ids = self._bias = self._forbidden_V = None
        if rules.biases:
            self._bias_ids = torch.tensor([token for token, _ in rules.biases], dtype=torch.int64, device=device)
            self._bias = torch.tensor([bias for _, bias in rules.biases], dtype=torch.float32, device=device)
        if constrained:
            self._forbidden_V = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        window = sampling.repetition_window
        recent = RecentTokens(window, vocab_size, device) if sampling.repetition_penalty != 1 else None
        counts = TokenCounts(window, vocab_size, device) if sampling.counts_tokens else None
        repeats = RepeatPenalties(sampling, rules.breakers, vocab_size, device) if sampling.dry_multiplier else None
        self._recent, self._counts, self._repeats = recent, counts, repeats
        self._histories = [history for history in (recent, counts) if history is not None]
        self._mirostat = Mirostat(sampling, device) if sampling.mirostat_tau is not None else None

    def restart(self, sequence: Sequence[int]) -> None:
        """Begin a reply to a sequence of at least one token."""
        for history in self._histories:
            history.restart(sequence)
        if self._repeats is not None:
            self._repeats.restart(sequence)
        if self._mirostat is not None:
            self._mirostat.restart()

    def prepare(self, number: float) -> None:
        """Get ready for the next draw, with a number from `backends.draws.uniform`."""
        self._number_B.fill_(number)
        if self._sampling.xtc_probability > 0:
            self._chance_B.fill_(second(number))
        if self._repeats is not None:
            self._repeats.set_next()

    def allow(self, allowed_V: Tensor) -> None:
        """Set the tokens that may come next: bool on the host, shorter than the vocabulary where its end may not."""
        assert self._forbidden_V is not None, "the sampler was made without a constraint"
        self._forbidden_V.fill_(True)
        self._forbidden_V[: len(allowed_V)].copy_(~allowed_V[: len(self._forbidden_V)])

    def draw(self, logits_BV: Tensor) -> Tensor:
        """Draw a token, int64 [1], and remember it on the device; `sampling.INVALID_TOKEN` where nothing can be drawn.

        Once it is known on the host, `note_drawn` completes the memory.
        """
        logits_BV = self._adjusted(logits_BV)
        if self._mirostat is not None and self._sampling.temperature > 0:
            tokens_B = self._mirostat.draw(logits_BV, self._number_B)
        else:
            tokens_B = draw(logits_BV, self._sampling, self._number_B, chance_B=self._chance_B)
        for history in self._histories:
            history.push(tokens_B)
        return tokens_B

    def note_drawn(self, token: int) -> None:
        """Remember what was drawn on the host; an invalid token counts as token 0."""
        if self._repeats is not None:
            self._repeats.push(max(token, 0))

    def _adjusted(self, logits_BV: Tensor) -> Tensor:
        """Apply the constraint, logit bias, penalties and DRY."""
        sampling = self._sampling
        if self._forbidden_V is not None:
            logits_BV = logits_BV.masked_fill(self._forbidden_V, -math.inf)
        if self._bias_ids is not None and self._bias is not None:
            logits_BV = logits_BV.index_add(-1, self._bias_ids, self._bias.to(logits_BV.dtype).unsqueeze(0))
        if self._recent is not None:
            logits_BV = penalise_repetition(logits_BV, self._recent.ids_N.unsqueeze(0), sampling.repetition_penalty)
        if self._counts is not None:
            logits_BV = self._counts.penalise(logits_BV, sampling.frequency_penalty, sampling.presence_penalty)
        return logits_BV if self._repeats is None else self._repeats.penalise(logits_BV)


class Mirostat:
    """Mirostat 2, which learns a limit of surprise that keeps the average at `mirostat_tau` bits.

    Basu et al. 2021, "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", algorithm 2. As
    in llama.cpp the temperature comes first, the limit begins at 2 tau, and the surprise that counts is that among
    the tokens kept.
    """

    def __init__(self, sampling: Sampling, device: torch.device) -> None:
        assert sampling.mirostat_tau is not None
        self._tau_bits, self._eta = sampling.mirostat_tau, sampling.mirostat_eta
        self._temperature = sampling.temperature
        self._limit_bits_B = torch.zeros(1, dtype=torch.float64, device=device)
        self.restart()

    def restart(self) -> None:
        """Forget what was learnt."""
        self._limit_bits_B.fill_(2 * self._tau_bits)

    def draw(self, logits_BV: Tensor, number_B: Tensor) -> Tensor:
        """Draw one token from logits [1, V], and learn from it."""
        scores_BV = logits_BV.double()
        log_p_BV = ((scores_BV - scores_BV.amax(dim=-1, keepdim=True)) / self._temperature).log_softmax(dim=-1)
        ids_BV = torch.arange(log_p_BV.shape[-1], device=log_p_BV.device).unsqueeze(0)
        kept_BK, ids_BK = without_dropped(keep_within_surprise(log_p_BV, self._limit_bits_B), ids_BV)
        tokens_B = inverse_cdf(kept_BK, ids_BK, 1.0, number_B)
        drawn_log_p_B = log_p_BV.gather(-1, tokens_B.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        surprise_B = (kept_BK.logsumexp(dim=-1) - drawn_log_p_B) / math.log(2)
        self._limit_bits_B.sub_(self._eta * (surprise_B - self._tau_bits))
        return tokens_B
