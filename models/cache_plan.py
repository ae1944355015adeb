"""Which token lies in which slot, and who may see whom: the arithmetic of the ring cache, without its storage.

Tokens are counted by index, 0 for the first one fed; rotary positions are the index plus where the text begins.
A bounded layer keeps index i in slot i until its slots are used up, then overwrites the oldest index that is not a
sink. A growing layer keeps index i in slot i for ever.

Sinks are stored like any other key, turned to their own position. Once a ring has wrapped, queries meet them as if
they sat just before the window (the in-cache positions of StreamingLLM, arXiv 2309.17453, section 3.2). Rotary
attention depends on distances only, so turning the query to in-cache position `slots - 1` once more does exactly
what turning every key to its place in the cache would, and no rotation is ever repeated.

Shape letters: B rows of the batch, S slots, T tokens of a call, K keys attended to, N tokens kept, M queries packed on
one key head (group * T).
"""

# ruff: noqa: N815 (fields carry shape letters too)
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

import torch
from torch import Tensor

from backends.requests import CachePolicy
from models.config import ModelConfig


@dataclass(frozen=True)
class LayerLimits:
    """How far one layer looks and how much it keeps.

    Attributes:
        window: keys a query sees, itself included, sinks apart; None sees everything.
        sinks: first tokens that stay visible for ever; 0 unless the layer is bounded to less than it was trained on.
        grows: whether every token is kept. If not, the layer has `window + sinks` slots.
    """

    window: int | None
    sinks: int = 0
    grows: bool = False

    @property
    def slots(self) -> int | None:
        """Tokens a layer has room for; None grows."""
        return None if self.grows or self.window is None else self.window + self.sinks


def layer_limits(config: ModelConfig, policy: CachePolicy, window: int, sinks: int) -> tuple[LayerLimits, ...]:
    """Limits of every layer under a policy; the bytes they cost are `models.sizing.kv_bytes`.

    A sliding layer never looks further than it was trained to, and has seen texts without their beginning: with room
    for its trained window it needs no sinks. Bounding a full layer, or a sliding one further than it was trained to be,
    is an approximation, and what sinks are for. (Gemma 3 270M, trained window 512, cut to 128 over 1,500 tokens: mean
    loss past the window 3.97 with 4 sinks on the sliding layers, 4.10 without, 3.87 uncut.)
    """
    return tuple(_limits_of(layer.trained_window, policy, window, sinks) for layer in config.layers)


def _limits_of(trained_window: int | None, policy: CachePolicy, window: int, sinks: int) -> LayerLimits:
    if policy is CachePolicy.FULL or (policy is CachePolicy.AS_TRAINED and trained_window is None):
        return LayerLimits(window=trained_window, grows=True)
    if trained_window is not None and trained_window <= sinks + window:
        return LayerLimits(window=trained_window)
    return LayerLimits(window=window, sinks=sinks)


def slots_of(indices: Tensor, limits: LayerLimits) -> Tensor:
    """Slot of each token: its own index until the ring wraps, then round and round behind the sinks.

    >>> slots_of(torch.tensor([0, 3, 4, 5, 9]), LayerLimits(window=4, sinks=1)).tolist()
    [0, 3, 4, 1, 1]
    """
    if limits.window is None or limits.grows:
        return indices
    if limits.sinks == 0:
        return indices % limits.window
    return torch.where(indices < limits.sinks, indices, (indices - limits.sinks) % limits.window + limits.sinks)


def indices_in(slots_S: Tensor, lengths_B1: Tensor, limits: LayerLimits) -> Tensor:
    """Index [B, S] that each slot holds after `lengths_B1` tokens a row, -1 where empty: the inverse of `slots_of`.

    >>> indices_in(torch.arange(5), torch.tensor([[7]]), LayerLimits(window=4, sinks=1)).tolist()
    [[0, 5, 6, 3, 4]]
    """
    held_BS = slots_S.expand(len(lengths_B1), -1)
    if limits.window is not None and not limits.grows:
        newest_B1 = lengths_B1 - 1
        rolling_BS = newest_B1 - (newest_B1 - slots_S) % limits.window
        rolling_BS = torch.where(rolling_BS < limits.sinks, -1, rolling_BS)
        held_BS = torch.where(slots_S < limits.sinks, held_BS, rolling_BS)
    return torch.where(held_BS < lengths_B1, held_BS, -1)


def is_visible(queries_BT: Tensor, keys_BK: Tensor, limits: LayerLimits) -> Tensor:
    """Mask [B, T, K]: whether a query may look at a key, both by token index; -1 marks an empty slot.

    Exactly `window` keys, the query's own included, and the sinks.
    """
    queries_BT1, keys_B1K = queries_BT.unsqueeze(-1), keys_BK.unsqueeze(1)
    visible_BTK = (keys_B1K >= 0) & (keys_B1K <= queries_BT1)
    if limits.window is not None:
        near_BTK = keys_B1K > queries_BT1 - limits.window
        visible_BTK &= near_BTK | (keys_B1K < limits.sinks)
    return visible_BTK


@dataclass(frozen=True)
class DecodePlan:
    """One new token a row: write its slot, then attend over the buffer in slot order.

    Keys carry their rotation and softmax does not care about order, so nothing is moved.

    Attributes:
        slots_B: where each row writes.
        columns: slots attended to.
        mask_B11K: which of them a row may see; None if all.
        num_sinks: leading slots met at `sink_queries_BT`; 0 where queries meet them at their own position.
        sink_queries_BT: in-cache index of each query, for the sinks.
        fills_sinks: whether a row may write one of its sinks.
    """

    slots_B: Tensor
    columns: slice
    mask_B11K: Tensor | None = None
    num_sinks: int = 0
    sink_queries_BT: Tensor | None = None
    fills_sinks: bool = False


@dataclass(frozen=True)
class ChunkPlan:
    """Several new tokens a row: attend over [filled slots ++ chunk], and only then store what later tokens will see.

    Attributes:
        columns: slots attended to, before the chunk.
        mask_B1MK: what each packed query may see.
        kept_rows_N, kept_tokens_N, kept_slots_N: token `kept_tokens_N[i]` of row `kept_rows_N[i]` goes to that slot.
        is_sink_B1K1: which keys are sinks; None where queries meet them at their own position.
        sink_queries_BT: in-cache index of each query, for the sinks.
        new_sinks_B1T1: which tokens of the chunk are sinks; None if none is.
    """

    columns: slice
    mask_B1MK: Tensor
    kept_rows_N: Tensor
    kept_tokens_N: Tensor
    kept_slots_N: Tensor
    is_sink_B1K1: Tensor | None = None
    sink_queries_BT: Tensor | None = None
    new_sinks_B1T1: Tensor | None = None


Plan = Union[DecodePlan, ChunkPlan]  # noqa: UP007


def plan_decode(
    limits: LayerLimits, lengths: Sequence[int], lengths_B: Tensor, num_slots: int, static: bool
) -> DecodePlan:
    """Plan for one token a row.

    Args:
        limits: of the layers it is for.
        lengths: tokens fed before, one a row.
        lengths_B: the same, on the device.
        num_slots: allocated.
        static: ask nothing of `lengths` that changes from step to step, so that a captured graph stays right; only
            whether the ring is full is looked at.
    """
    shortest, longest = min(lengths), max(lengths)
    is_full = limits.slots is not None and shortest >= limits.slots - 1
    if static:
        columns, all_visible = slice(0, num_slots), is_full
    else:
        first = max(0, shortest + 1 - limits.window) if limits.grows and limits.window is not None else 0
        columns, all_visible = slice(first, min(longest + 1, num_slots)), is_full or shortest == longest
    splits = limits.sinks > 0 and limits.slots is not None and (static or longest >= limits.slots)
    return DecodePlan(
        slots_B=slots_of(lengths_B, limits),
        columns=columns,
        mask_B11K=None if all_visible else _decode_mask(limits, lengths_B, columns),
        num_sinks=limits.sinks if splits else 0,
        sink_queries_BT=_in_cache(lengths_B.unsqueeze(1), limits) if splits else None,
        fills_sinks=limits.sinks > 0 and not is_full and (static or shortest < limits.sinks),
    )


def _decode_mask(limits: LayerLimits, lengths_B: Tensor, columns: slice) -> Tensor:
    """The new token sits in its slot already, so a ring holds just what may be seen: its filled slots."""
    slots_K = torch.arange(columns.start, columns.stop, device=lengths_B.device)
    visible_BK = slots_K <= lengths_B.unsqueeze(1)
    if limits.grows and limits.window is not None:
        visible_BK &= slots_K > lengths_B.unsqueeze(1) - limits.window
    return visible_BK[:, None, None]


def plan_chunk(
    limits: LayerLimits, lengths: Sequence[int], num_tokens: int, group: int, device: torch.device
) -> ChunkPlan:
    """Plan for `num_tokens` tokens a row after `lengths` tokens; `group` queries share a key head."""
    columns = _columns_before(limits, lengths)
    lengths_B1 = torch.tensor(lengths, dtype=torch.int64).unsqueeze(1)
    chunk_BT = lengths_B1 + torch.arange(num_tokens)
    stored_BK = indices_in(torch.arange(columns.start, columns.stop), lengths_B1, limits)
    keys_BK = torch.cat((stored_BK, chunk_BT), dim=1)
    mask_BMK = is_visible(chunk_BT, keys_BK, limits).repeat(1, group, 1)
    splits = limits.sinks > 0 and limits.slots is not None and max(lengths) + num_tokens > limits.slots
    is_sink_BT = chunk_BT < limits.sinks
    rows_N, tokens_N = _kept(chunk_BT, limits).nonzero(as_tuple=True)
    return ChunkPlan(
        columns=columns,
        mask_B1MK=mask_BMK.unsqueeze(1).to(device),
        kept_rows_N=rows_N.to(device),
        kept_tokens_N=tokens_N.to(device),
        kept_slots_N=slots_of(chunk_BT, limits)[rows_N, tokens_N].to(device),
        is_sink_B1K1=(keys_BK < limits.sinks)[:, None, :, None].to(device) if splits else None,
        sink_queries_BT=_in_cache(chunk_BT, limits).to(device) if splits else None,
        new_sinks_B1T1=is_sink_BT[:, None, :, None].to(device) if is_sink_BT.any() else None,
    )


def _columns_before(limits: LayerLimits, lengths: Sequence[int]) -> slice:
    """Slots a chunk may look at: the filled ones, and of a growing layer those within the first query's window."""
    if limits.slots is not None:
        return slice(0, min(max(lengths), limits.slots))
    first = 0 if limits.window is None else max(0, min(lengths) + 1 - limits.window)
    return slice(first, max(lengths))


def _kept(chunk_BT: Tensor, limits: LayerLimits) -> Tensor:
    """Which tokens of a chunk will be seen later: all, or the sinks and the last `window`."""
    if limits.window is None or limits.grows:
        return torch.ones_like(chunk_BT, dtype=torch.bool)
    return (chunk_BT < limits.sinks) | (chunk_BT > chunk_BT[:, -1:] - limits.window)


def _in_cache(indices_BT: Tensor, limits: LayerLimits) -> Tensor:
    """Index of a query in the cache: its own until the ring is full, the last slot from then on."""
    assert limits.slots is not None
    return indices_BT.clamp(max=limits.slots - 1)
