"""Keys and values of the past, in storage that is allocated once and, for bounded layers, never moves.

The cache owns a `models.layer_cache` for each layer and counts tokens; `models.cache_plan` says which token lies in
which slot, `models.attention` reads and writes, `models.decoder` drives a whole call. Counts are Python ints, one a
row, and are never derived from how full a buffer is.

Shape letters: B rows of the batch, H key/value heads, S slots, D head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from backends.requests import CachePolicy, KVType
from models.cache_plan import LayerLimits, Plan, layer_limits, plan_chunk, plan_decode
from models.coded_cache import CodedLayerCache
from models.config import ModelConfig
from models.layer_cache import LayerCache, LayerStorage

GROWTH_BLOCK_SLOTS = 1024


@dataclass(frozen=True)
class CacheSnapshot:
    """Exact copy of a cache at one moment.

    Attributes:
        lengths: tokens fed, one a row.
        first_position: of the first of them.
        layers: every slot then filled, as each layer's `state`.
        frequencies: as of the cache; None for those it has.
    """

    lengths: tuple[int, ...]
    first_position: int
    layers: tuple[tuple[Tensor, ...], ...]
    frequencies: tuple[bool, ...] | None = None

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for layer in self.layers for tensor in layer)


class KVCache:
    """Keys and values of every layer of one model, for a batch of rows with independent lengths.

    Args:
        config: the model.
        policy, window, sinks: see `backends.requests`; `sinks` is the resolved number here.
        batch_size: rows B.
        dtype: of the stored keys and values.
        device: where they live.
        fill: what an empty slot holds. NaN makes any read of one visible; it must be finite for rows of different
            lengths and for `Decoder.decode_step(static=True)`, which give empty slots a weight of zero.
        first_position: rotary position of the first token fed.
        planned_length: tokens that will surely be fed (a whole prompt, before its first chunk). Only rotary kinds whose
            frequencies depend on the length of the text ask for it.
        kv_type: "int8" or "fp8" codes everything but the sinks (see `models.kv_codes`); "auto" keeps `dtype`.

    Attributes:
        kinds: the distinct limits among the layers; one plan each serves a whole call.
        layers: storage, in the model's order.
        lengths: tokens fed, one a row.
        lengths_B: the same on the device, at an address that stays, for captured graphs.
        generation: counts the times storage moved (growing layers) or frequencies changed (longrope); a captured graph
            is valid for one.
        frequencies: which list of frequencies each longrope layer took for the keys it holds.

    Raises:
        ValueError: a window below 1, negative sinks, or no rows.
    """

    def __init__(
        self,
        config: ModelConfig,
        policy: CachePolicy,
        window: int,
        sinks: int,
        batch_size: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        fill: float = 0.0,
        first_position: int = 0,
        planned_length: int = 0,
        kv_type: KVType = "auto",
    ) -> None:
        for name, value, least in (("window", window, 1), ("sinks", sinks, 0), ("batch size", batch_size, 1)):
            if value < least:
                raise ValueError(f"{name} of {value} is below {least}; choose {least} or more")
        limits = layer_limits(config, policy, window, sinks)
        self.kinds = tuple(dict.fromkeys(limits))
        self.lengths = [0] * batch_size
        self.lengths_B = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self.first_position = first_position
        self.planned_length = planned_length
        self.generation = 0
        self.frequencies: tuple[bool, ...] = ()
        self._group = config.num_heads // config.num_kv_heads
        self._fill = fill

        def layer(limit: LayerLimits) -> LayerStorage:
            shape, kind = (batch_size, config.num_kv_heads, limit.slots or 0, config.head_dim), self.kinds.index(limit)
            if kv_type != "auto":
                return CodedLayerCache(limit, kind, kv_type, shape, dtype, device, fill)
            keys, values = (torch.full(shape, fill, dtype=dtype, device=device) for _ in ("keys", "values"))
            return LayerCache(limit, kind, keys, values)

        self.layers = tuple(layer(limit) for limit in limits)

    @property
    def positions(self) -> list[int]:
        """Rotary position of the next token, one a row: the tokens ever fed, plus where the text begins."""
        return [self.first_position + length for length in self.lengths]

    @property
    def position(self) -> int:
        """Position of the next token where the rows agree.

        Raises:
            ValueError: rows of different lengths.
        """
        if len(set(self.lengths)) > 1:
            raise ValueError(f"rows have lengths {self.lengths}; ask for `positions`")
        return self.positions[0]

    @property
    def nbytes(self) -> int:
        """Bytes allocated. Bounded layers have all of theirs from the start, to the byte of `models.sizing`."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def held_nbytes(self) -> int:
        """Bytes of the slots that hold a token now, over all rows."""
        return sum(layer.held_nbytes(length) for layer in self.layers for length in self.lengths)

    @property
    def device(self) -> torch.device:
        return self.lengths_B.device

    @property
    def capacity_tokens(self) -> int:
        """Slots of the largest bounded layer; 0 where none is bounded."""
        return max((kind.slots or 0 for kind in self.kinds), default=0)

    @property
    def can_overwrite(self) -> bool:
        """Whether any layer is bounded."""
        return self.capacity_tokens > 0

    @property
    def has_overwritten(self) -> bool:
        """Whether a ring has wrapped, so that going back needs a snapshot."""
        return any(max(self.lengths) > kind.slots for kind in self.kinds if kind.slots is not None)

    @property
    def full_kinds(self) -> tuple[bool, ...]:
        """Whether the next token finds or makes the ring of each kind full, so that it needs no mask; False if none."""
        return tuple(kind.slots is not None and min(self.lengths) >= kind.slots - 1 for kind in self.kinds)

    def plans(self, num_tokens: int, static: bool = False) -> tuple[Plan, ...]:
        """What a call of `num_tokens` tokens a row does, one plan a kind. Makes room in growing layers first."""
        self.reserve(max(self.lengths) + num_tokens)
        if num_tokens > 1:
            device = self.lengths_B.device
            return tuple(plan_chunk(kind, self.lengths, num_tokens, self._group, device) for kind in self.kinds)
        return tuple(
            plan_decode(kind, self.lengths, self.lengths_B, self._num_slots(kind), static) for kind in self.kinds
        )

    def frequency_length(self, num_tokens: int) -> int:
        """Length of the text that rotary frequencies are for, in a call of `num_tokens` tokens a row."""
        return self.first_position + max(self.planned_length, max(self.lengths) + num_tokens)

    def use_frequencies(self, frequencies: tuple[bool, ...]) -> None:
        """Note what the keys from here on are turned by; the decoder calls it."""
        if frequencies != self.frequencies:  # a captured graph knows the old ones
            self.frequencies, self.generation = frequencies, self.generation + 1

    def advance(self, num_tokens: int, static: bool = False) -> None:
        """Count tokens as fed; the decoder calls it. `static` counts on the device alone, as a captured graph does."""
        self.lengths_B += num_tokens
        if not static:
            self.count_replayed(num_tokens)

    def count_replayed(self, num_tokens: int) -> None:
        """Count on the host what a replayed graph has counted on the device."""
        self.lengths = [length + num_tokens for length in self.lengths]

    @torch.inference_mode()
    def reset(self, first_position: int = 0, planned_length: int = 0) -> None:
        """Forget everything. Rings stay where they are; growing layers give their storage back."""
        self._set_lengths([0] * len(self.lengths), first_position)
        self.planned_length = planned_length
        for layer in self.layers:
            if layer.limits.slots is None:
                layer.resize(0, self._fill)
            else:  # not for tidiness: a zero weight times an old infinity would be NaN
                layer.clear(self._fill)
        self.generation += any(kind.slots is None for kind in self.kinds)

    @torch.inference_mode()
    def snapshot(self, device: torch.device | str | None = None, row: int | None = None) -> CacheSnapshot:
        """Copy every filled slot, to `device` if given; of one row if given."""
        rows = slice(None) if row is None else slice(row, row + 1)
        lengths = tuple(self.lengths[rows])
        layers = tuple(
            tuple(_copy(tensor, device) for tensor in layer.state(rows, max(lengths))) for layer in self.layers
        )
        return CacheSnapshot(lengths, self.first_position, layers, self.frequencies)

    @torch.inference_mode()
    def restore(self, snapshot: CacheSnapshot) -> None:
        """Return to the very state of `snapshot`, of this or an equally built cache, as often as wanted.

        Raises:
            ValueError: a snapshot of another number of rows.
        """
        if len(snapshot.lengths) != len(self.lengths):
            raise ValueError(f"snapshot of {len(snapshot.lengths)} rows does not fit a cache of {len(self.lengths)}")
        self.reserve(max(snapshot.lengths))
        self._set_lengths(list(snapshot.lengths), snapshot.first_position)
        self.planned_length = 0
        self.use_frequencies(self.frequencies if snapshot.frequencies is None else snapshot.frequencies)
        for layer, state in zip(self.layers, snapshot.layers, strict=True):
            layer.load(state, self._fill, slice(None))

    def rewind(self, length: int) -> None:
        """Forget all but the first `length` tokens of the row; slot and index are one until a ring wraps.

        Raises:
            ValueError: more than one row, or a ring has wrapped.
        """
        if len(self.lengths) != 1 or self.has_overwritten:
            raise ValueError(f"a cache of {self.lengths} tokens cannot go back to {length}; restore a snapshot")
        layers = tuple(layer.state(slice(None), length) for layer in self.layers)
        self.restore(CacheSnapshot((length,), self.first_position, layers, self.frequencies))

    @torch.inference_mode()
    def set_row(self, row: int, snapshot: CacheSnapshot) -> None:
        """Make one row equal to a snapshot of one row; the others go on untouched.

        Raises:
            ValueError: a snapshot of several rows, of a text that begins elsewhere, or of keys turned by another
                longrope list than those of the other rows.
        """
        if len(snapshot.lengths) != 1 or snapshot.first_position != self.first_position:
            raise ValueError(f"row {row} takes a snapshot of one row that begins at position {self.first_position}")
        if snapshot.frequencies not in (None, self.frequencies) and max(self.lengths) > 0:
            raise ValueError(f"row {row} takes keys turned by the frequencies of the other rows")
        self.use_frequencies(snapshot.frequencies or self.frequencies)
        self.reserve(snapshot.lengths[0])
        self.lengths[row] = snapshot.lengths[0]
        self._set_lengths(self.lengths, self.first_position)
        for layer, state in zip(self.layers, snapshot.layers, strict=True):
            layer.load(state, self._fill, slice(row, row + 1))

    def _num_slots(self, kind: LayerLimits) -> int:
        return next(layer.num_slots for layer in self.layers if layer.limits == kind)

    @torch.inference_mode()
    def reserve(self, num_tokens: int) -> None:
        """Give growing layers room for `num_tokens`, in whole blocks."""
        growing = [layer for layer in self.layers if layer.limits.slots is None and layer.num_slots < num_tokens]
        for layer in growing:
            layer.resize(-(-num_tokens // GROWTH_BLOCK_SLOTS) * GROWTH_BLOCK_SLOTS, self._fill)
        self.generation += bool(growing)

    def _set_lengths(self, lengths: list[int], first_position: int) -> None:
        self.lengths = lengths
        self.lengths_B.copy_(torch.tensor(lengths))
        self.first_position = first_position


def _copy(tensor: Tensor, device: torch.device | str | None) -> Tensor:
    return tensor.to(device or tensor.device, copy=True).contiguous()
