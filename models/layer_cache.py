"""Storage of the keys and values of one layer, and nothing else.

Shape letters: B rows of the batch, H key/value heads, S slots, T tokens of a chunk, D head_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.cache_plan import ChunkPlan, DecodePlan, LayerLimits


class LayerCache:
    """Storage of one layer: keys and values [B, H, S, D], and nothing else.

    Attributes:
        limits: how far the layer looks and how much it keeps.
        kind: index into `KVCache.kinds`; layers of one kind share a plan.
    """

    def __init__(self, limits: LayerLimits, kind: int, keys_BHSD: Tensor, values_BHSD: Tensor) -> None:
        self.limits = limits
        self.kind = kind
        self.keys_BHSD = keys_BHSD
        self.values_BHSD = values_BHSD

    @property
    def dtype(self) -> torch.dtype:
        return self.keys_BHSD.dtype

    @property
    def num_slots(self) -> int:
        return self.keys_BHSD.shape[2]

    @property
    def nbytes(self) -> int:
        return self.keys_BHSD.nbytes + self.values_BHSD.nbytes

    def read(self, columns: slice) -> tuple[Tensor, Tensor]:
        """Views of the keys and values in some slots."""
        return self.keys_BHSD[:, :, columns], self.values_BHSD[:, :, columns]

    def write_token(self, plan: DecodePlan, keys_BH1D: Tensor, values_BH1D: Tensor) -> None:
        """Store one token a row."""
        slots_B = plan.slots_B
        if len(slots_B) == 1:  # a third of the time of the general case, on CPU
            self.keys_BHSD.index_copy_(2, slots_B, keys_BH1D)
            self.values_BHSD.index_copy_(2, slots_B, values_BH1D)
        else:
            rows_B = torch.arange(len(slots_B), device=slots_B.device)
            self.keys_BHSD[rows_B, :, slots_B] = keys_BH1D.squeeze(2)
            self.values_BHSD[rows_B, :, slots_B] = values_BH1D.squeeze(2)

    def write_chunk(self, plan: ChunkPlan, keys_BHTD: Tensor, values_BHTD: Tensor) -> None:
        """Copy the tokens that stay visible; a view of the chunk would keep all of it alive."""
        rows_N, tokens_N, slots_N = plan.kept_rows_N, plan.kept_tokens_N, plan.kept_slots_N
        self.keys_BHSD[rows_N, :, slots_N] = keys_BHTD[rows_N, :, tokens_N]
        self.values_BHSD[rows_N, :, slots_N] = values_BHTD[rows_N, :, tokens_N]

    def resize(self, num_slots: int, fill: float) -> None:
        """Move to storage of another size, keeping what fits."""
        self.keys_BHSD = _resized(self.keys_BHSD, num_slots, fill)
        self.values_BHSD = _resized(self.values_BHSD, num_slots, fill)

    def load(self, keys_BHSD: Tensor, values_BHSD: Tensor, fill: float, rows: slice) -> None:
        """Overwrite rows in place: the given slots, and emptiness in those behind them."""
        num_filled = keys_BHSD.shape[2]
        for storage_BHSD, given_BHSD in ((self.keys_BHSD, keys_BHSD), (self.values_BHSD, values_BHSD)):
            storage_BHSD[rows, :, :num_filled] = given_BHSD
            storage_BHSD[rows, :, num_filled:] = fill


def _resized(old_BHSD: Tensor, num_slots: int, fill: float) -> Tensor:
    batch_size, num_heads, num_old, head_dim = old_BHSD.shape
    new_BHSD = old_BHSD.new_full((batch_size, num_heads, num_slots, head_dim), fill)
    num_kept = min(num_slots, num_old)
    new_BHSD[:, :, :num_kept] = old_BHSD[:, :, :num_kept]
    return new_BHSD
