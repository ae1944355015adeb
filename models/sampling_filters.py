"""Filters of candidates beyond top-k, top-p and min-p: what they drop becomes -inf. On the device, of fixed shapes.

NaN stays where it is, for the draw to report. Shape letters: B rows, V vocabulary, K candidates.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from backends.draws import ROUNDING

_LOG_OF_NOTHING = -1e4  # exp of it is 0, so p log p is 0 there and not the NaN of 0 times -inf


def one_cpu_row(scores_BK: Tensor) -> bool:
    """Whether candidates may be taken out of the tensor: a CUDA graph, or other rows, need their shape to stay."""
    return scores_BK.device.type == "cpu" and scores_BK.numel() == scores_BK.shape[-1]


def without_dropped(scores_BK: Tensor, ids_BK: Tensor, kept_BK: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Take dropped candidates out, so that what follows costs what is left of a vocabulary and not all of it.

    Args:
        kept_BK: bool; None keeps what is not -inf. Where nothing is kept, all stay, for the draw to report.
    """
    if not one_cpu_row(scores_BK):
        return scores_BK, ids_BK
    kept_K = (scores_BK != -math.inf if kept_BK is None else kept_BK).flatten().nonzero().squeeze(-1)
    return (scores_BK[..., kept_K], ids_BK[..., kept_K]) if len(kept_K) else (scores_BK, ids_BK)


def keep_top_sigma(logits_BV: Tensor, num_sigmas: float) -> Tensor:
    """Keep logits within `num_sigmas` population standard deviations of the largest; -inf counts in neither.

    Tang et al. 2024, "Top-n-sigma: Not All Logits Are You Need", and llama.cpp's `llama_sampler_top_n_sigma_apply`.
    """
    scores_BV = logits_BV.double()
    possible_BV = logits_BV != -math.inf
    num_B1 = possible_BV.count_nonzero(dim=-1).unsqueeze(-1)
    mean_B1 = torch.where(possible_BV, scores_BV, 0).sum(dim=-1, keepdim=True) / num_B1
    deviations_BV = torch.where(possible_BV, scores_BV - mean_B1, 0)
    sigma_B1 = (deviations_BV.square_().sum(dim=-1, keepdim=True) / num_B1).sqrt()
    threshold_B1 = logits_BV.amax(dim=-1, keepdim=True).double() - num_sigmas * sigma_B1
    return logits_BV.masked_fill(scores_BV < threshold_B1, -math.inf)


def largest(logits_BV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest logits and their ids, largest first; of equal ones those with the lowest ids."""
    scores_BK, ids_BK = logits_BV.topk(count, dim=-1)
    least_B1 = scores_BK[..., -1:]
    tied_BV = logits_BV == least_B1
    if not one_cpu_row(logits_BV) or int(tied_BV.count_nonzero()) > int((scores_BK == least_B1).count_nonzero()):
        free_B1 = count - (logits_BV > least_B1).sum(dim=-1, keepdim=True)
        beyond_BV = tied_BV & (tied_BV.cumsum(dim=-1, dtype=torch.int32) > free_B1)
        ids_BK = logits_BV.masked_fill(beyond_BV, -math.inf).topk(count, dim=-1).indices
    ids_BK = ids_BK.sort(dim=-1).values
    scores_BK, order_BK = logits_BV.gather(-1, ids_BK).sort(dim=-1, descending=True, stable=True)
    return scores_BK, ids_BK.gather(-1, order_BK)


def keep_top_k(logits_BV: Tensor, top_k: int | None) -> Tensor:
    """Keep the `top_k` largest logits where they are."""
    if top_k is None or top_k >= logits_BV.shape[-1]:
        return logits_BV
    scores_BK, ids_BK = largest(logits_BV, top_k)
    return torch.full_like(logits_BV, -math.inf).scatter(-1, ids_BK, scores_BK)


def keep_typical(logits_BV: Tensor, typical_p: float) -> Tensor:
    """Keep the smallest set closest to the expected surprise whose probability exceeds `typical_p`.

    Closeness is `|-log p - entropy|`: Meister et al. 2023, "Locally Typical Sampling", section 4, and llama.cpp's
    `llama_sampler_typical_apply`.
    """
    log_p_BV = logits_BV.double().log_softmax(dim=-1)
    p_BV = log_p_BV.exp()
    entropy_B1 = -(p_BV * log_p_BV.clamp(min=_LOG_OF_NOTHING)).sum(dim=-1, keepdim=True)
    if one_cpu_row(logits_BV):
        least_log_p = math.log((1 - typical_p) / (2 * logits_BV.shape[-1]))
        ids_BV = torch.arange(logits_BV.shape[-1]).expand_as(logits_BV)
        likely_BK, ids_BK = without_dropped(log_p_BV, ids_BV, log_p_BV >= least_log_p)
        kept_BK, reach_B1 = _typical(likely_BK, entropy_B1, typical_p)
        if bool(reach_B1 < -least_log_p - entropy_B1):  # all that were left out are farther than the last that is kept
            kept_ids_BK = ids_BK[kept_BK].unsqueeze(0).view(*ids_BK.shape[:-1], -1)
            return torch.full_like(logits_BV, -math.inf).scatter(-1, kept_ids_BK, logits_BV.gather(-1, kept_ids_BK))
    kept_BV, _ = _typical(log_p_BV, entropy_B1, typical_p)
    return logits_BV.masked_fill(~kept_BV, -math.inf)


def _typical(log_p_BK: Tensor, entropy_B1: Tensor, typical_p: float) -> tuple[Tensor, Tensor]:
    """Return which candidates are kept, and how far from the entropy the last of them is, [B, 1]."""
    distance_BK, order_BK = (log_p_BK + entropy_B1).abs().sort(dim=-1, stable=True)
    reached_BK = log_p_BK.gather(-1, order_BK).exp().cumsum(dim=-1)
    kept_BK = torch.ones_like(reached_BK, dtype=torch.bool)
    kept_BK[..., 1:] = ~(reached_BK[..., :-1] > typical_p + ROUNDING)
    farthest_B1 = distance_BK.masked_fill(~kept_BK, 0).amax(dim=-1, keepdim=True)
    return torch.zeros_like(kept_BK).scatter(-1, order_BK, kept_BK), farthest_B1


def exclude_top_choices(scores_BK: Tensor, probability: float, threshold: float, chance_B: Tensor | float) -> Tensor:
    """Drop all tokens of at least `threshold` probability but the least likely of them, where `chance` is below `p`.

    p-e-w 2024, "Exclude Top Choices (XTC)", oobabooga/text-generation-webui#6335, and llama.cpp's
    `llama_sampler_xtc_apply`.

    Args:
        scores_BK: logits in float64, -inf for what was dropped before.
        chance_B: uniform in [0, 1), one a row or one for all.
    """
    chance = torch.as_tensor(chance_B, dtype=torch.float64, device=scores_BK.device)
    if threshold > 0.5 or (one_cpu_row(scores_BK) and bool(chance.min() >= probability)):
        return scores_BK
    above_BK = (scores_BK.softmax(dim=-1) >= threshold - ROUNDING) & (scores_BK != -math.inf)
    least_B1 = scores_BK.masked_fill(~above_BK, math.inf).amin(dim=-1, keepdim=True)
    dropped_BK = (scores_BK > least_B1) & (chance < probability).unsqueeze(-1)
    return scores_BK.masked_fill(dropped_BK, -math.inf)


def keep_within_surprise(log_p_BV: Tensor, most_bits_B: Tensor) -> Tensor:
    """Drop tokens of a surprise `-log2 p` above `most_bits`; the most likely stays.

    The truncation of mirostat 2: Basu et al. 2021, "Mirostat", algorithm 2, and llama.cpp's
    `llama_sampler_mirostat_v2_apply`.
    """
    least_B1 = torch.minimum(-most_bits_B.unsqueeze(-1) * math.log(2), log_p_BV.amax(dim=-1, keepdim=True))
    return log_p_BV.masked_fill(log_p_BV < least_B1, -math.inf)
