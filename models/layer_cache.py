"""Storage of the keys and values of one layer, and nothing else: what is asked of it, and the plain way to do it.

`models.coded_cache` is the other way, in 8 bits.

Shape letters: B rows of the batch, H key/value heads, S slots, T tokens of a chunk, D head_dim.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from models.cache_plan import ChunkPlan, DecodePlan, LayerLimits


class LayerStorage(Protocol):
    """What `models.attention` and `models.ring_cache` need of a layer.

    Attributes:
        limits: how far the layer looks and how much it keeps.
        kind: index into `KVCache.kinds`; layers of one kind share a plan.
    """

    limits: LayerLimits
    kind: int

    @property
    def dtype(self) -> torch.dtype:
        """Of what is read and written."""
        ...

    @property
    def num_slots(self) -> int: ...

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that is stored, slots in the third place; what takes most of the bytes of the keys comes first."""
        ...

    @property
    def nbytes(self) -> int: ...

    def held_nbytes(self, length: int) -> int:
        """Bytes of the slots that hold a token in a row of that length."""
        ...

    def read(self, columns: slice) -> tuple[Tensor, Tensor]:
        """Keys and values in some slots."""
        ...

    def read_with(self, plan: ChunkPlan, keys_BHTD: Tensor, values_BHTD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values in the slots of `plan`, then those of the chunk as they will be read once stored."""
        ...

    def write_token(self, plan: DecodePlan, keys_BH1D: Tensor, values_BH1D: Tensor) -> None:
        """Store one token a row."""
        ...

    def write_chunk(self, plan: ChunkPlan, keys_BHTD: Tensor, values_BHTD: Tensor) -> None:
        """Store the tokens that stay visible."""
        ...

    def resize(self, num_slots: int, fill: float) -> None:
        """Move to storage of another size, keeping what fits."""
        ...

    def clear(self, fill: float) -> None:
        """Make every slot an empty one."""
        ...

    def state(self, rows: slice, num_tokens: int) -> tuple[Tensor, ...]:
        """Views of all that rows of up to that many tokens hold, for `load`."""
        ...

    def load(self, state: tuple[Tensor, ...], fill: float, rows: slice) -> None:
        """Overwrite rows in place: the given slots, and emptiness in those behind them."""
        ...


class LayerCache:
    """Plain storage: keys and values [B, H, S, D]; see `LayerStorage`."""

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
    def tensors(self) -> tuple[Tensor, ...]:
        return self.keys_BHSD, self.values_BHSD

    @property
    def nbytes(self) -> int:
        return self.keys_BHSD.nbytes + self.values_BHSD.nbytes

    def held_nbytes(self, length: int) -> int:
        return sum(tensor.nbytes for tensor in self.state(slice(0, 1), length))

    def read(self, columns: slice) -> tuple[Tensor, Tensor]:
        """Views of the keys and values in some slots."""
        return self.keys_BHSD[:, :, columns], self.values_BHSD[:, :, columns]

    def read_with(self, plan: ChunkPlan, keys_BHTD: Tensor, values_BHTD: Tensor) -> tuple[Tensor, Tensor]:
        stored_keys, stored_values = self.read(plan.columns)
        return torch.cat((stored_keys, keys_BHTD), dim=2), torch.cat((stored_values, values_BHTD), dim=2)

    def write_token(self, plan: DecodePlan, keys_BH1D: Tensor, values_BH1D: Tensor) -> None:
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
        self.keys_BHSD = resized(self.keys_BHSD, num_slots, fill)
        self.values_BHSD = resized(self.values_BHSD, num_slots, fill)

    def clear(self, fill: float) -> None:
        self.keys_BHSD.fill_(fill)
        self.values_BHSD.fill_(fill)

    def state(self, rows: slice, num_tokens: int) -> tuple[Tensor, ...]:
        return self.keys_BHSD[rows, :, :num_tokens], self.values_BHSD[rows, :, :num_tokens]

    def load(self, state: tuple[Tensor, ...], fill: float, rows: slice) -> None:
        for storage_BHSD, given_BHSD in zip(self.tensors, state, strict=True):
            num_filled = given_BHSD.shape[2]
            storage_BHSD[rows, :, :num_filled] = given_BHSD
            storage_BHSD[rows, :, num_filled:] = fill


def resized(old_BHSD: Tensor, num_slots: int, fill: float) -> Tensor:
    """Return a copy with another number of slots."""
    batch_size, num_heads, num_old, head_dim = old_BHSD.shape
    new_BHSD = old_BHSD.new_full((batch_size, num_heads, num_slots, head_dim), fill)
    num_kept = min(num_slots, num_old)
    new_BHSD[:, :, :num_kept] = old_BHSD[:, :, :num_kept]
    return new_BHSD
