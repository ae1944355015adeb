"""One llama.cpp context: decode a few tokens, read logits, move or drop cached cells.

It holds one sequence, number 0. What the cells mean is kept in `sequence`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as lib

from backends.errors import OutOfMemoryError, RingsideError
from backends.llamacpp.library import Model, library_log
from backends.llamacpp.memory import CacheSize, cache_sizes
from backends.llamacpp.overrides import Overrides
from backends.llamacpp.plan import ContextPlan
from backends.requests import KVType

BATCH_TOKENS = 128
"""Tokens decoded at once. Part of the memory of sliding layers (their cache is window + batch), hence small."""

_SEQUENCE = 0
_TO_END = -1
_RUNNING_STATE = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
_DECODE_ERRORS = {1: "its cache has no room", 2: "it was interrupted", -1: "the batch is invalid", -2: "memory ran out"}


class Context:
    """The key/value cache and compute buffers of a model.

    Every method belongs to the one thread that generates: the library has no locks. Sizes are known after `close` too.

    Raises:
        OutOfMemoryError: the context cannot be created.
    """

    def __init__(self, model: Model, plan: ContextPlan, num_threads: int, kv_type: KVType = "auto") -> None:
        self._model = model
        self.num_cells = plan.num_cells
        self.keeps_everything = plan.keeps_everything
        log = library_log()
        log.clear()
        self._pointer: Any = lib.llama_init_from_model(
            model.pointer, _context_params(plan, num_threads, kv_type, model.overrides)
        )
        if not self._pointer:
            raise OutOfMemoryError(
                f"llama.cpp cannot set up a context of {plan.num_cells:,} tokens: {log.reason() or 'no reason given'}.",
                "Choose a smaller window, or free memory.",
            )
        self.log_lines = log.lines()
        self.caches: tuple[CacheSize, ...] = cache_sizes(self.log_lines, is_q8_0=kv_type != "auto")
        self._memory: Any = lib.llama_get_memory(self._pointer)
        self._batch: Any = lib.llama_batch_init(BATCH_TOKENS, 0, 1)

    def close(self) -> None:
        """Free the cache and the buffers."""
        if self._pointer:
            lib.llama_batch_free(self._batch)
            lib.llama_free(self._pointer)
            self._pointer = None

    @property
    def allocated_bytes(self) -> int:
        """KV bytes set aside."""
        return sum(cache.num_bytes for cache in self.caches)

    @property
    def bytes_per_token(self) -> int:
        """KV bytes of one token over all layers."""
        return sum(cache.bytes_per_token for cache in self.caches)

    @property
    def num_layers(self) -> int:
        """Layers that keep keys and values of their own."""
        return sum(cache.num_layers for cache in self.caches)

    @property
    def num_sliding_layers(self) -> int:
        return sum(cache.num_layers for cache in self.caches[1:])

    @property
    def has_full_layers(self) -> bool:
        """Whether the base cache has layers at all: moving positions in an empty one aborts the process."""
        return self.caches[0].num_layers > 0 if self.caches else False

    def decode(self, tokens: Sequence[int], position: int, want_logits: bool) -> None:
        """Run up to `BATCH_TOKENS` tokens that take the positions from `position` on.

        Raises:
            RingsideError: llama.cpp refuses; what it had stored of the batch is undefined then.
        """
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = position + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = _SEQUENCE
            batch.logits[index] = 0
        batch.logits[len(tokens) - 1] = want_logits
        code = lib.llama_decode(self._pointer, batch)
        if code != 0:
            self._raise(code, position)

    def logits(self) -> npt.NDArray[np.float32]:
        """Return the logits of the last token decoded with `want_logits`, float32 [V]: a view, valid until `decode`."""
        pointer = lib.llama_get_logits_ith(self._pointer, -1)
        if not pointer:
            raise RingsideError("llama.cpp gives no logits for the last token.", "Load the model again.")
        return np.ctypeslib.as_array(pointer, shape=(self._model.vocab_size,))

    def clear(self) -> None:
        """Empty the cache."""
        lib.llama_memory_clear(self._memory, True)

    def remove(self, start: int, end: int = _TO_END) -> None:
        """Drop the cells of the positions from `start` up to, not including, `end`; -1 is to the end."""
        if not lib.llama_memory_seq_rm(self._memory, _SEQUENCE, start, end):
            raise RingsideError("llama.cpp cannot drop part of this model's cache.")

    def move(self, start: int, distance: int) -> None:
        """Add `distance` to every position from `start` on; the keys are rotated along at the next `decode`."""
        lib.llama_memory_seq_add(self._memory, _SEQUENCE, start, _TO_END, distance)

    def oldest_position(self) -> int:
        """Return the oldest position that sliding layers, or all where none slides, still hold; -1 if empty."""
        return int(lib.llama_memory_seq_pos_min(self._memory, _SEQUENCE))

    def held_bytes(self) -> int:
        """Measure the bytes that keys and values of the sequence take now, walking over all cells.

        With sliding layers kept whole, llama.cpp counts only what their mask lets through per sequence, but every
        used cell for the whole state.
        """
        if self.keeps_everything:
            return int(lib.llama_state_get_size(self._pointer))
        return int(lib.llama_state_seq_get_size(self._pointer, _SEQUENCE))

    @property
    def has_running_state(self) -> bool:
        """Whether some layers hold one state in place of keys and values."""
        return self._model.is_recurrent

    def running_state(self) -> bytes:
        """Return the library's copy of what `has_running_state` tells of; keys and values are not in it."""
        num_bytes = int(lib.llama_state_seq_get_size_ext(self._pointer, _SEQUENCE, _RUNNING_STATE))
        buffer = (ctypes.c_uint8 * num_bytes)()
        num_written = int(lib.llama_state_seq_get_data_ext(self._pointer, buffer, num_bytes, _SEQUENCE, _RUNNING_STATE))
        return bytes(memoryview(buffer)[:num_written])

    def set_running_state(self, state: bytes) -> bool:
        """Put a running state in place; False if the library refuses, and what is there is undefined then."""
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        num_read = int(lib.llama_state_seq_set_data_ext(self._pointer, buffer, len(state), _SEQUENCE, _RUNNING_STATE))
        return num_read == len(state)

    def state(self) -> bytes:
        """Return the library's copy of the sequence; no move of positions may be waiting for the next `decode`."""
        num_bytes = int(lib.llama_state_seq_get_size(self._pointer, _SEQUENCE))
        buffer = (ctypes.c_uint8 * num_bytes)()
        num_written = int(lib.llama_state_seq_get_data(self._pointer, buffer, num_bytes, _SEQUENCE))
        return bytes(memoryview(buffer)[:num_written])

    def set_state(self, state: bytes) -> bool:
        """Put a copy of the sequence in place of what is there; False, and nothing there, if the library refuses."""
        self.clear()
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        is_taken = int(lib.llama_state_seq_set_data(self._pointer, buffer, len(state), _SEQUENCE)) == len(state)
        if not is_taken:
            self.clear()
        return is_taken

    def _raise(self, code: int, position: int) -> None:
        what = _DECODE_ERRORS.get(code, f"error {code}")
        message = f"llama.cpp failed at position {position:,}: {what}."
        reason = library_log().reason()
        library_log().clear()  # or the next failure would be explained by this one
        if code == -2:
            raise OutOfMemoryError(message, "Choose a smaller window, or free memory.")
        raise RingsideError(message, reason)


def _context_params(plan: ContextPlan, num_threads: int, kv_type: KVType, overrides: Overrides) -> Any:
    params = lib.llama_context_default_params()
    params.n_ctx = plan.num_cells
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.n_seq_max = 1
    params.n_outputs_max = 1  # else logits are reserved for a whole batch: 514 MiB with a vocabulary of 262,144
    params.swa_full = plan.keeps_everything  # true by default, which would save nothing
    params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_AUTO
    if kv_type != "auto":
        params.type_k = params.type_v = lib.GGML_TYPE_Q8_0
        params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED  # coded values are read by nothing else
    params.n_threads = params.n_threads_batch = num_threads
    if overrides.yarn_beta_fast is not None and overrides.yarn_beta_slow is not None:
        params.yarn_beta_fast, params.yarn_beta_slow = overrides.yarn_beta_fast, overrides.yarn_beta_slow
    return params
