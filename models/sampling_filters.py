"""Filters of candidates beyond top-k, top-p and min-p: what they drop becomes -inf. On the device, of fixed shapes.

NaN stays where it is, for the draw to report. Shape letters: B rows, V vocabulary, K candidates.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def keep_top_sigma(logits_BV: Tensor, num_sigmas: float) -> Tensor:
    """Keep logits within `num_sigmas` population standard deviations of the largest; -inf counts in neither.

    Tang et al. 2024, "Top-n-sigma: Not All Logits Are You Need", and llama.cpp's `llama_sampler_top_n_sigma_apply`.
    """
    scores_BV = logits_BV.double()
    possible_BV = scores_BV != -math.inf
    num_B1 = possible_BV.sum(dim=-1, keepdim=True)
    mean_B1 = scores_BV.masked_fill(~possible_BV, 0).sum(dim=-1, keepdim=True) / num_B1
    deviations_BV = (scores_BV - mean_B1).masked_fill(~possible_BV, 0)
    sigma_B1 = (deviations_BV.square().sum(dim=-1, keepdim=True) / num_B1).sqrt()
    threshold_B1 = scores_BV.amax(dim=-1, keepdim=True) - num_sigmas * sigma_B1
    return logits_BV.masked_fill(scores_BV < threshold_B1, -math.inf)


def keep_top_k(logits_BV: Tensor, top_k: int | None) -> Tensor:
    """Keep the `top_k` largest logits where they are."""
    if top_k is None or top_k >= logits_BV.shape[-1]:
        return logits_BV
    scores_BK, ids_BK = logits_BV.topk(top_k, dim=-1)
    return torch.full_like(logits_BV, -math.inf).scatter(-1, ids_BK, scores_BK)


def keep_typical(logits_BV: Tensor, typical_p: float) -> Tensor:
    """Keep the smallest set closest to the expected surprise whose probability exceeds `typical_p`.

    Closeness is `|-log p - entropy|`: Meister et al. 2023, "Locally Typical Sampling", section 4, and llama.cpp's
    `llama_sampler_typical_apply`.
    """
    log_p_BV = logits_BV.double().log_softmax(dim=-1)
    p_BV = log_p_BV.exp()
    entropy_B1 = -torch.where(p_BV == 0, 0, p_BV * log_p_BV).sum(dim=-1, keepdim=True)
    order_BV = (log_p_BV + entropy_B1).abs().sort(dim=-1, stable=True).indices
    reached_BV = p_BV.gather(-1, order_BV).cumsum(dim=-1)
    dropped_BV = torch.zeros_like(reached_BV, dtype=torch.bool)
    dropped_BV[..., 1:] = reached_BV[..., :-1] > typical_p
    return logits_BV.masked_fill(torch.zeros_like(dropped_BV).scatter(-1, order_BV, dropped_BV), -math.inf)


def exclude_top_choices(scores_BK: Tensor, probability: float, threshold: float, chance_B: Tensor | float) -> Tensor:
    """Drop all tokens of at least `threshold` probability but the least likely of them, where `chance` is below `p`.

    p-e-w 2024, "Exclude Top Choices (XTC)", oobabooga/text-generation-webui#6335, and llama.cpp's
    `llama_sampler_xtc_apply`.

    Args:
        scores_BK: logits in float64, -inf for what was dropped before.
        chance_B: uniform in [0, 1), one a row or one for all.
    """
    if threshold > 0.5:
        return scores_BK
    above_BK = (scores_BK.softmax(dim=-1) >= threshold) & (scores_BK != -math.inf)
    least_B1 = scores_BK.masked_fill(~above_BK, math.inf).amin(dim=-1, keepdim=True)
    chance = torch.as_tensor(chance_B, dtype=torch.float64, device=scores_BK.device)
    dropped_BK = (scores_BK > least_B1) & (chance < probability).unsqueeze(-1)
    return scores_BK.masked_fill(dropped_BK, -math.inf)


def keep_within_surprise(log_p_BV: Tensor, most_bits_B: Tensor) -> Tensor:
    """Drop tokens of a surprise `-log2 p` above `most_bits`; the most likely stays.

    The truncation of mirostat 2: Basu et al. 2021, "Mirostat", algorithm 2, and llama.cpp's
    `llama_sampler_mirostat_v2_apply`.
    """
    too_rare_BV = -log_p_BV / math.log(2) > most_bits_B.unsqueeze(-1)
    peak_B1 = log_p_BV.amax(dim=-1, keepdim=True)
    return log_p_BV.masked_fill(too_rare_BV & (log_p_BV < peak_B1), -math.inf)
