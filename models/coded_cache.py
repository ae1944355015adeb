"""Storage of one layer in 8 bits: half the bytes of 16, a quarter of 32, for text that differs slightly.

Sinks stay as they are: every later token attends to them, and they are few. Everything else is coded by
`models.kv_codes` when it is stored and decoded when it is read. A chunk attends to its own tokens as they will be
stored, so any way of cutting a text into calls gives the same logits, as with a plain cache.

Shape letters: B rows of the batch, H key/value heads, S slots, P slots of sinks, C coded slots = S - P, T tokens of a
chunk, N tokens kept of it, D head_dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.cache_plan import ChunkPlan, DecodePlan, LayerLimits
from models.kv_codes import SCALE_DTYPE, CodedType, decode, encode
from models.layer_cache import resized


class CodedLayerCache:
    """Storage of one layer in codes, scales and plain sinks; see `models.layer_cache.LayerStorage`.

    Args:
        limits, kind: as of the plain one.
        kv_type: how numbers are coded.
        shape: B, H, S and D.
        dtype: of the sinks, and of what is read.
        device: where it lives.
        fill: what an empty slot decodes to, NaN or 0.
    """

    def __init__(
        self,
        limits: LayerLimits,
        kind: int,
        kv_type: CodedType,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device | str,
        fill: float,
    ) -> None:
        self.limits = limits
        self.kind = kind
        self.dtype = dtype
        self._keys, self._values = (
            _CodedSlots(kv_type, limits.sinks, shape, dtype, device, fill) for _ in ("keys", "values")
        )

    @property
    def num_slots(self) -> int:
        return self.limits.sinks + self._keys.codes_BHCD.shape[2]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (*self._keys.tensors, *self._values.tensors)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def held_nbytes(self, length: int) -> int:
        return sum(tensor.nbytes for tensor in self.state(slice(0, 1), length))

    def read(self, columns: slice) -> tuple[Tensor, Tensor]:
        return self._keys.read(columns), self._values.read(columns)

    def read_with(self, plan: ChunkPlan, keys_BHTD: Tensor, values_BHTD: Tensor) -> tuple[Tensor, Tensor]:
        return self._keys.read_with(plan, keys_BHTD), self._values.read_with(plan, values_BHTD)

    def write_token(self, plan: DecodePlan, keys_BH1D: Tensor, values_BH1D: Tensor) -> None:
        self._keys.write_token(plan, keys_BH1D)
        self._values.write_token(plan, values_BH1D)

    def write_chunk(self, plan: ChunkPlan, keys_BHTD: Tensor, values_BHTD: Tensor) -> None:
        self._keys.write_chunk(plan, keys_BHTD)
        self._values.write_chunk(plan, values_BHTD)

    def resize(self, num_slots: int, fill: float) -> None:
        self._keys.resize(num_slots, fill)
        self._values.resize(num_slots, fill)

    def clear(self, fill: float) -> None:
        self._keys.clear(fill)
        self._values.clear(fill)

    def state(self, rows: slice, num_tokens: int) -> tuple[Tensor, ...]:
        return (*self._keys.state(rows, num_tokens), *self._values.state(rows, num_tokens))

    def load(self, state: tuple[Tensor, ...], fill: float, rows: slice) -> None:
        half = len(state) // 2
        self._keys.load(state[:half], fill, rows)
        self._values.load(state[half:], fill, rows)


class _CodedSlots:
    """The keys, or the values, of one layer.

    Attributes:
        codes_BHCD, scales_BHC1: of every slot behind the sinks.
        sinks_BHPD: as they are.
    """

    def __init__(
        self,
        kv_type: CodedType,
        num_sinks: int,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device | str,
        fill: float,
    ) -> None:
        batch_size, num_heads, num_slots, head_dim = shape
        self._kv_type, self._num_sinks = kv_type, num_sinks
        coded, sinks = (batch_size, num_heads, num_slots - num_sinks), (batch_size, num_heads, num_sinks, head_dim)
        self.codes_BHCD = torch.zeros((*coded, head_dim), dtype=torch.int8, device=device)
        self.scales_BHC1 = torch.full((*coded, 1), fill, dtype=SCALE_DTYPE, device=device)
        self.sinks_BHPD = torch.full(sinks, fill, dtype=dtype, device=device)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.codes_BHCD, self.scales_BHC1, self.sinks_BHPD

    def read(self, columns: slice) -> Tensor:
        """Decoded keys or values of some slots."""
        coded = slice(max(0, columns.start - self._num_sinks), max(0, columns.stop - self._num_sinks))
        decoded_BHKD = self._decode(self.codes_BHCD[:, :, coded], self.scales_BHC1[:, :, coded])
        if self._num_sinks == 0:
            return decoded_BHKD
        return torch.cat((self.sinks_BHPD[:, :, columns.start : columns.stop], decoded_BHKD), dim=2)

    def read_with(self, plan: ChunkPlan, chunk_BHTD: Tensor) -> Tensor:
        """The same, and a chunk as it will be read later."""
        stored_BHTD = self._decode(*encode(chunk_BHTD, self._kv_type))
        if plan.new_sinks_B1T1 is not None:
            stored_BHTD = torch.where(plan.new_sinks_B1T1, chunk_BHTD, stored_BHTD)
        return torch.cat((self.read(plan.columns), stored_BHTD), dim=2)

    def write_token(self, plan: DecodePlan, given_BH1D: Tensor) -> None:
        codes_BH1D, scales_BH11 = encode(given_BH1D, self._kv_type)
        places_B, is_coded_B = plan.slots_B - self._num_sinks, None
        if plan.fills_sinks:  # which rows do is known to the device alone, so every row writes to both
            is_sink_B = plan.slots_B < self._num_sinks
            _put(self.sinks_BHPD, plan.slots_B.clamp(max=self._num_sinks - 1), given_BH1D, is_sink_B)
            places_B, is_coded_B = places_B.clamp(min=0), ~is_sink_B
        _put(self.codes_BHCD, places_B, codes_BH1D, is_coded_B)
        _put(self.scales_BHC1, places_B, scales_BH11, is_coded_B)

    def write_chunk(self, plan: ChunkPlan, chunk_BHTD: Tensor) -> None:
        rows_N, tokens_N, slots_N = plan.kept_rows_N, plan.kept_tokens_N, plan.kept_slots_N
        if plan.new_sinks_B1T1 is not None:
            is_sink_N = slots_N < self._num_sinks
            rows_M, tokens_M, slots_M = rows_N[is_sink_N], tokens_N[is_sink_N], slots_N[is_sink_N]
            self.sinks_BHPD[rows_M, :, slots_M] = chunk_BHTD[rows_M, :, tokens_M]
            rows_N, tokens_N, slots_N = rows_N[~is_sink_N], tokens_N[~is_sink_N], slots_N[~is_sink_N]
        codes_NHD, scales_NH1 = encode(chunk_BHTD[rows_N, :, tokens_N], self._kv_type)
        self.codes_BHCD[rows_N, :, slots_N - self._num_sinks] = codes_NHD
        self.scales_BHC1[rows_N, :, slots_N - self._num_sinks] = scales_NH1

    def resize(self, num_slots: int, fill: float) -> None:
        self.codes_BHCD = resized(self.codes_BHCD, num_slots - self._num_sinks, 0)
        self.scales_BHC1 = resized(self.scales_BHC1, num_slots - self._num_sinks, fill)

    def clear(self, fill: float) -> None:
        self.scales_BHC1.fill_(fill)
        self.sinks_BHPD.fill_(fill)

    def state(self, rows: slice, num_tokens: int) -> tuple[Tensor, ...]:
        coded = slice(0, max(0, num_tokens - self._num_sinks))
        return self.codes_BHCD[rows, :, coded], self.scales_BHC1[rows, :, coded], self.sinks_BHPD[rows, :, :num_tokens]

    def load(self, state: tuple[Tensor, ...], fill: float, rows: slice) -> None:
        for storage, given, empty in zip(self.tensors, state, (0, fill, fill), strict=True):
            storage[rows, :, : given.shape[2]] = given
            storage[rows, :, given.shape[2] :] = empty

    def _decode(self, codes_BHKD: Tensor, scales_BHK1: Tensor) -> Tensor:
        return decode(codes_BHKD, scales_BHK1, self._kv_type, self.sinks_BHPD.dtype)


def _put(storage_BHSD: Tensor, places_B: Tensor, given_BH1D: Tensor, is_written_B: Tensor | None) -> None:
    """Write one slot a row, but only in rows where `is_written_B`, if given."""
    if len(places_B) == 1 and is_written_B is None:  # a third of the time of the general case, on CPU
        storage_BHSD.index_copy_(2, places_B, given_BH1D)
        return
    rows_B, given_BHD = torch.arange(len(places_B), device=places_B.device), given_BH1D.squeeze(2)
    if is_written_B is not None:
        given_BHD = torch.where(is_written_B[:, None, None], given_BHD, storage_BHSD[rows_B, :, places_B])
    storage_BHSD[rows_B, :, places_B] = given_BHD
