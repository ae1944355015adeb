"""Drawing the next token from logits, on the device the logits live on.

The order and meaning of every step are those of `backends.requests.Sampling`. Nothing here waits for the device: every
shape is fixed by the settings, so that a step can be captured in a CUDA graph, and trouble is reported in the token
itself (`INVALID_TOKEN`), the one number that is read back anyway.

Shape letters: B rows drawn at once (may be absent), V vocabulary, K candidates left by top-k, N recent tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from backends.draws import ROUNDING
from backends.requests import Sampling
from models.sampling_filters import (
    exclude_top_choices,
    keep_top_k,
    keep_top_sigma,
    keep_typical,
    largest,
    one_cpu_row,
    without_dropped,
)

INVALID_TOKEN = -1
"""Drawn where the logits hold NaN or +inf, or allow no token at all."""


def draw(
    logits_BV: Tensor,
    sampling: Sampling,
    uniform_B: Tensor | float = 0.0,
    recent_BN: Tensor | None = None,
    chance_B: Tensor | float = 0.0,
) -> Tensor:
    """Draw one token a row, by what needs no memory of earlier draws; `models.token_sampler` adds what does.

    Args:
        logits_BV: any float type, [B, V] or [V]; left as they are.
        uniform_B: from `backends.draws.uniform`, in [0, 1), one a row or one for all; not read when greedy.
        recent_BN: token ids the repetition penalty looks at, repeats allowed; None is none. Ids are within the
            vocabulary; to fill up unused places repeat an id that is already there.
        chance_B: from `backends.draws.second`, decides whether XTC is applied.

    Returns:
        Token ids, int64 of shape [B] or []; `INVALID_TOKEN` where nothing can be drawn.
    """
    if recent_BN is not None and recent_BN.shape[-1] and sampling.repetition_penalty != 1.0:
        logits_BV = penalise_repetition(logits_BV, recent_BN, sampling.repetition_penalty)
    if sampling.temperature == 0:
        return _most_likely(logits_BV)
    if sampling.top_n_sigma is not None:
        logits_BV = keep_top_sigma(logits_BV, sampling.top_n_sigma)
    if sampling.typical_p < 1:
        logits_BV = keep_typical(keep_top_k(logits_BV, sampling.top_k), sampling.typical_p)
    scores_BK, ids_BK = _candidates(logits_BV, sampling)
    if sampling.xtc_probability > 0:
        scores_BK = exclude_top_choices(scores_BK, sampling.xtc_probability, sampling.xtc_threshold, chance_B)
    return inverse_cdf(scores_BK, ids_BK, sampling.temperature, uniform_B)


def penalise_repetition(logits_BV: Tensor, recent_BN: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative logits of recent tokens by `penalty`, once a token however often it came.

    The rule of CTRL (Keskar et al. 2019, section 4.1) as transformers and llama.cpp apply it.
    """
    picked_BN = logits_BV.gather(-1, recent_BN)
    penalised_BN = torch.where(picked_BN > 0, picked_BN / penalty, picked_BN * penalty)
    return logits_BV.scatter(-1, recent_BN, penalised_BN)


class RecentTokens:
    """The ids the repetition penalty looks at, in storage of fixed size and address.

    The last `window` tokens are a ring of ids. Without a limit, a table with a place for every token of the vocabulary
    holds each token that came at its own place; so it stops growing there, however long the sequence.

    Args:
        window: how many tokens back; None is the whole sequence.
        vocab_size: V.

    Attributes:
        ids_N: int64; places nothing was written to yet repeat an id that counts anyway.
    """

    def __init__(self, window: int | None, vocab_size: int, device: torch.device) -> None:
        self.ids_N = torch.zeros(vocab_size if window is None else window, dtype=torch.int64, device=device)
        self._next_place = None if window is None else torch.zeros(1, dtype=torch.int64, device=device)

    def restart(self, sequence: Sequence[int]) -> None:
        """Forget all and take in a sequence of at least one token."""
        past = torch.tensor(sequence if self._next_place is None else sequence[-len(self.ids_N) :])
        past = past.to(self.ids_N.device)
        self.ids_N.fill_(past[-1])
        if self._next_place is None:
            self.ids_N[past] = past
        else:
            self.ids_N[: len(past)] = past
            self._next_place.fill_(len(past) % len(self.ids_N))

    def push(self, token_1: Tensor) -> None:
        """Take in one more token, [1]; an invalid one counts as token 0."""
        token_1 = token_1.clamp(min=0)
        if self._next_place is None:
            self.ids_N.scatter_(0, token_1, token_1)
        else:
            self.ids_N.scatter_(0, self._next_place, token_1)
            self._next_place.add_(1).remainder_(len(self.ids_N))


def _most_likely(logits_BV: Tensor) -> Tensor:
    peak = logits_BV.max(dim=-1)  # NaN counts as the largest; the lowest id wins a tie on the CPU
    return _or_invalid(peak.indices, peak.values)


def _candidates(logits_BV: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Apply top-k, top-p and min-p; what they drop is -inf.

    Returns:
        Scores in float64 and their token ids, both [B, K], in token-id order.
    """
    vocab_size = logits_BV.shape[-1]
    if sampling.top_k is not None and sampling.top_k < vocab_size:
        scores_BK, ids_BK = largest(logits_BV, sampling.top_k)
        scores_BK = scores_BK.double()
        scores_BK = _drop_beyond_top_p(scores_BK, _log_total(scores_BK), sampling.top_p)
    elif sampling.top_p < 1:
        log_total_B1 = _log_total(logits_BV)
        scores_BK, ids_BK = _leading(logits_BV, log_total_B1, sampling.top_p)
        scores_BK = _drop_beyond_top_p(scores_BK, log_total_B1, sampling.top_p)
    else:
        ids_BV = torch.arange(vocab_size, device=logits_BV.device).expand_as(logits_BV)
        scores_BV = _drop_below_min_p(logits_BV.double(), sampling.min_p)
        is_filtered = sampling.min_p > 0 or sampling.typical_p < 1 or sampling.top_n_sigma is not None
        return without_dropped(scores_BV, ids_BV) if is_filtered else (scores_BV, ids_BV)
    scores_BK = _drop_below_min_p(scores_BK, sampling.min_p)
    ids_BK, order_BK = ids_BK.sort(dim=-1)
    return scores_BK.gather(-1, order_BK), ids_BK


def _log_total(scores_BK: Tensor) -> Tensor:
    """Log of what probabilities are divided by, [B, 1] in float64."""
    return scores_BK.double().logsumexp(dim=-1, keepdim=True)


def _leading(logits_BV: Tensor, log_total_B1: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Return scores in float64 and ids, largest first, of enough tokens for their probability to reach `top_p`.

    Sorting a vocabulary of 262,144 takes a CPU as long as the model does. All V tokens below (1 - p) / V together are
    less than 1 - p, so those above reach p; they are a tenth of the vocabulary at most, mostly a hundredth.
    """
    ids_BK = torch.arange(logits_BV.shape[-1], device=logits_BV.device).expand_as(logits_BV)
    if one_cpu_row(logits_BV):
        least_B1 = (log_total_B1 + math.log((1 - top_p) / (2 * logits_BV.shape[-1]))).to(logits_BV.dtype)
        logits_BV, ids_BK = without_dropped(logits_BV, ids_BK, logits_BV >= least_B1)
    scores_BK, order_BK = logits_BV.sort(dim=-1, descending=True, stable=True)
    return scores_BK.double(), ids_BK.gather(-1, order_BK)


def _drop_beyond_top_p(scores_BK: Tensor, log_total_B1: Tensor, top_p: float) -> Tensor:
    """Keep the smallest leading set whose probability reaches `top_p`; scores come sorted, largest first."""
    if top_p >= 1:
        return scores_BK
    cumulative_BK = (scores_BK - log_total_B1).exp().cumsum(dim=-1)
    dropped_BK = torch.zeros_like(scores_BK, dtype=torch.bool)
    dropped_BK[..., 1:] = cumulative_BK[..., :-1] >= top_p - ROUNDING  # the most likely token stays, also for top-p 0
    return scores_BK.masked_fill(dropped_BK, -math.inf)


def _drop_below_min_p(scores_BK: Tensor, min_p: float) -> Tensor:
    if min_p <= 0:
        return scores_BK
    threshold_B1 = scores_BK.amax(dim=-1, keepdim=True) + math.log(min_p)
    return scores_BK.masked_fill(scores_BK < threshold_B1, -math.inf)


def inverse_cdf(scores_BK: Tensor, ids_BK: Tensor, temperature: float, uniform_B: Tensor | float) -> Tensor:
    """Return the first token, in id order, at which the cumulative probability exceeds the uniform number."""
    peak_B1 = scores_BK.amax(dim=-1, keepdim=True)
    weights_BK = ((scores_BK - peak_B1) / temperature).exp()  # the peak is taken off first: no overflow at tiny T
    cumulative_BK = weights_BK.cumsum(dim=-1)
    uniform = torch.as_tensor(uniform_B, dtype=torch.float64, device=scores_BK.device)
    target_B1 = uniform.unsqueeze(-1) * cumulative_BK[..., -1:]
    # Rounding may lift the target to the total itself; the clamp then takes the last token that has any weight.
    target_B1 = target_B1.clamp(max=cumulative_BK[..., -1:].nextafter(torch.zeros_like(peak_B1)))
    index_B1 = torch.searchsorted(cumulative_BK, target_B1, right=True).clamp(max=ids_BK.shape[-1] - 1)
    return _or_invalid(ids_BK.gather(-1, index_B1).squeeze(-1), peak_B1.squeeze(-1))


def _or_invalid(tokens_B: Tensor, peaks_B: Tensor) -> Tensor:
    return tokens_B.masked_fill(~peaks_B.isfinite(), INVALID_TOKEN)
