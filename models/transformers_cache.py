"""`RingCache`: a drop-in cache for stock transformers models whose sliding layers are rings.

For models our own decoder does not know, and for anyone's own script:

    model.generate(**inputs, past_key_values=RingCache(model.config))

transformers' own sliding caches copy the whole window at every step (cat and slice, or roll and copy). Here a step
writes one slot and attends over the buffer as it lies: keys carry their rotation already and softmax does not care
about order. Layers without a window keep everything, in buffers that grow by half, not copied at every token.

Needs transformers >= 5.17. Knows nothing of our decoder; `models.ring_cache` is that one's cache.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import (
    DYNAMIC_LAYER_TYPE_MAPPING,
    Cache,
    CacheLayerMixin,
    DynamicLayer,
    get_layer_types_and_kwargs,
)

KeysValues = tuple[torch.Tensor, torch.Tensor]


class RingCache(Cache):  # type: ignore[misc]  # transformers ships no types
    """Sliding layers in rings of exactly W slots, full layers growing.

    Args:
        config: of the model; its `layer_types` decide which layer slides.
        padded: whether rows are left-padded. transformers masks the columns in time order, so padded rows need the keys
            in that order too, which costs one copy of the window a step. None copies for batches and not for one row;
            pass True for one row that is padded.
        bounded: False keeps everything in every layer, to compare with; sliding ones attend to their window just so.

    A wrapped ring cannot be cropped, so assisted decoding refuses it (`is_croppable` is False).
    """

    def __init__(self, config: PreTrainedConfig, padded: bool | None = None, bounded: bool = True) -> None:
        layer_types, layer_arguments = get_layer_types_and_kwargs(config.get_text_config(decoder=True))
        super().__init__(
            layers=[
                _layer(layer_type, arguments, padded, bounded)
                for layer_type, arguments in zip(layer_types, layer_arguments, strict=True)
            ]
        )

    @property
    def rings(self) -> list[RingLayer]:
        return [layer for layer in self.layers if isinstance(layer, RingLayer)]

    @property
    def growing(self) -> list[GrowingLayer]:
        return [layer for layer in self.layers if isinstance(layer, GrowingLayer)]

    @property
    def _own_layers(self) -> list[RingLayer | GrowingLayer]:
        return [layer for layer in self.layers if isinstance(layer, (RingLayer, GrowingLayer))]

    @property
    def held_bytes(self) -> int:
        """Bytes of keys, values and states that the next token can attend to."""
        own = sum(layer.held_bytes for layer in self._own_layers)
        return own + sum(tensor.nbytes for tensor in self._foreign_tensors())

    @property
    def allocated_bytes(self) -> int:
        """Bytes of storage set aside for them, counted on the storage itself."""
        layers = [layer for layer in self._own_layers if layer.is_initialized]
        tensors = [*(tensor for layer in layers for tensor in layer.storage), *self._foreign_tensors()]
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token's keys and values in all layers that keep such; known after the first update."""
        layers = [layer for layer in self._own_layers if layer.is_initialized]
        return sum(_bytes_of(tensor, 1) for layer in layers for tensor in layer.storage)

    @property
    def can_rewind(self) -> bool:
        """Whether the last tokens can be forgotten exactly: nothing was overwritten, no layer keeps other states."""
        is_ours = len(self._own_layers) == len(self.layers)
        return is_ours and all(ring.num_seen <= ring.window for ring in self.rings)

    def rewind(self, length: int) -> None:
        """Forget all but the first `length` tokens, where `can_rewind`."""
        assert self.can_rewind
        for layer in self._own_layers:
            layer.num_seen = min(layer.num_seen, length)

    def _foreign_tensors(self) -> list[torch.Tensor]:
        """Keys, values and states of layers that are transformers' own."""
        foreign = [layer for layer in self.layers if not isinstance(layer, (RingLayer, GrowingLayer))]
        return [value for layer in foreign for value in vars(layer).values() if isinstance(value, torch.Tensor)]


class RingLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of the last W positions; position p lies in slot p mod W.

    Buffers are [batch, kv_heads, W, head_dim], allocated at the first update and never moved.
    """

    is_sliding = True
    is_croppable = False

    def __init__(self, sliding_window: int, padded: bool | None = None, masked: bool = False) -> None:
        super().__init__()
        self.window = sliding_window
        self.num_seen = 0
        self._padded = padded
        self._masked = masked

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.device = key_states.device
        self.keys = _empty_like(key_states, self.window)
        self.values = _empty_like(value_states, self.window)
        self.is_initialized = True

    @property
    def storage(self) -> KeysValues:
        return self.keys, self.values

    @property
    def held_bytes(self) -> int:
        filled = min(self.num_seen, self.window)
        return sum(_bytes_of(tensor, filled) for tensor in self.storage) if filled else 0

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> KeysValues:
        """Store new keys and values [batch, kv_heads, T, head_dim]; return what the T queries attend over."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if key_states.shape[2] == 1:
            return self._step(key_states, value_states)
        return self._extend(key_states, value_states)

    def _step(self, key: torch.Tensor, value: torch.Tensor) -> KeysValues:
        slot = self.num_seen % self.window
        self.keys[:, :, slot] = key[:, :, 0]
        self.values[:, :, slot] = value[:, :, 0]
        self.num_seen += 1
        filled = min(self.num_seen, self.window)
        if self._needs_time_order(key.shape[0]):
            return self._last(self.keys, filled), self._last(self.values, filled)
        return self.keys[:, :, :filled], self.values[:, :, :filled]

    def _extend(self, keys: torch.Tensor, values: torch.Tensor) -> KeysValues:
        # Attend before storing: the first queries of the chunk still need keys that its last ones overwrite.
        num_kept = min(self.num_seen, self.window - 1)
        seen_keys = torch.cat([self._last(self.keys, num_kept), keys], dim=2)
        seen_values = torch.cat([self._last(self.values, num_kept), values], dim=2)
        num_stored = min(keys.shape[2], self.window)
        self.num_seen += keys.shape[2]
        slots = self._slots_of_last(num_stored)
        self.keys[:, :, slots] = keys[:, :, -num_stored:]
        self.values[:, :, slots] = values[:, :, -num_stored:]
        return seen_keys, seen_values

    def _needs_time_order(self, batch_size: int) -> bool:
        wanted = batch_size > 1 if self._padded is None else self._padded
        return (wanted or self._masked) and self.num_seen > self.window

    def _last(self, buffer: torch.Tensor, count: int) -> torch.Tensor:
        """Return the last `count` positions of a buffer in time order, as a copy."""
        return buffer[:, :, self._slots_of_last(count)]

    def _slots_of_last(self, count: int) -> torch.Tensor:
        return torch.arange(self.num_seen - count, self.num_seen, device=self.device) % self.window

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (number of columns, position of the first) for the mask of the next update."""
        num_kept = min(self.num_seen, self.window - 1)
        return num_kept + query_length, self.num_seen - num_kept

    def get_seq_length(self) -> int:
        """Return the number of tokens ever fed, not how many are kept."""
        return self.num_seen

    def get_max_length(self) -> int:
        return self.window

    def reset(self) -> None:
        self.num_seen = 0  # what the slots hold no longer counts, so there is nothing to erase

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.is_initialized:
            self.keys = self.keys.repeat_interleave(repeats, dim=0)
            self.values = self.values.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self.is_initialized:
            self.keys = self.keys[indices]
            self.values = self.values[indices]


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Every key and value ever seen, in buffers that grow by half when full: amortised one copy a token."""

    is_croppable = False

    def __init__(self) -> None:
        super().__init__()
        self.num_seen = 0
        self._key_buffer = self._value_buffer = torch.empty(0)

    @property
    def storage(self) -> KeysValues:
        return self._key_buffer, self._value_buffer

    @property
    def held_bytes(self) -> int:
        return sum(_bytes_of(tensor, self.num_seen) for tensor in self.storage) if self.num_seen else 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self._key_buffer = _empty_like(key_states, 0)
        self._value_buffer = _empty_like(value_states, 0)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> KeysValues:
        """Append keys and values [batch, kv_heads, T, head_dim]; return all so far, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.num_seen = self.num_seen, self.num_seen + key_states.shape[2]
        self._key_buffer = _with_room(self._key_buffer, start, self.num_seen)
        self._value_buffer = _with_room(self._value_buffer, start, self.num_seen)
        self._key_buffer[:, :, start : self.num_seen] = key_states
        self._value_buffer[:, :, start : self.num_seen] = value_states
        self.keys = self._key_buffer[:, :, : self.num_seen]
        self.values = self._value_buffer[:, :, : self.num_seen]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.num_seen

    def reset(self) -> None:
        self.num_seen = 0
        super().reset()

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        if self.num_seen:
            self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.num_seen:
            self._key_buffer = self._key_buffer.repeat_interleave(repeats, dim=0)
            self._value_buffer = self._value_buffer.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self.num_seen:
            self._key_buffer = self._key_buffer[indices.to(self.device)]
            self._value_buffer = self._value_buffer[indices.to(self.device)]


def _layer(layer_type: str, arguments: dict[str, Any], padded: bool | None, bounded: bool) -> CacheLayerMixin:
    if not bounded and layer_type in ("sliding_attention", "chunked_attention"):
        return GrowingLayer()
    match layer_type:
        case "sliding_attention":
            return RingLayer(arguments["sliding_window"], padded)
        case "chunked_attention":  # the mask is not all true once full, so columns must stay in time order
            return RingLayer(arguments["sliding_window"], padded, masked=True)
        case "full_attention":
            return GrowingLayer()
        case _:  # recurrent, shared and model-specific layers keep transformers' own, which are no KV rings
            return DYNAMIC_LAYER_TYPE_MAPPING[layer_type](**arguments)


def _empty_like(states: torch.Tensor, num_slots: int) -> torch.Tensor:
    batch_size, num_heads, _, head_dim = states.shape
    return states.new_empty((batch_size, num_heads, num_slots, head_dim))


def _with_room(buffer: torch.Tensor, num_held: int, num_needed: int) -> torch.Tensor:
    if num_needed <= buffer.shape[2]:
        return buffer
    grown = _empty_like(buffer, max(num_needed, num_held + num_held // 2, 64))
    grown[:, :, :num_held] = buffer[:, :, :num_held]
    return grown


def _bytes_of(buffer: torch.Tensor, num_slots: int) -> int:
    return buffer[:, :, :num_slots].numel() * buffer.element_size()
