"""llama.cpp's C library as typed Python: its log, a loaded model, and the model's vocabulary.

Knows nothing of caches or generation; see `context` for those. Functions of the library take pointers that ctypes
cannot type, so they are `Any` here and nowhere above.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as lib

from backends.errors import RingsideError, UnsupportedModelError
from backends.llamacpp.overrides import Overrides
from models.end_tokens import HTML_END
from models.reasoning import CONTROL_MARKS

INFO, WARNING, ERROR, CONTINUED = 2, 3, 4, 5
"""Levels of `enum ggml_log_level`; 1 is debug, and verbose enough to be dropped at the door."""

_HTML_END = HTML_END.encode()
_KINDS = (
    lib.LLAMA_TOKEN_ATTR_UNKNOWN
    | lib.LLAMA_TOKEN_ATTR_UNUSED
    | lib.LLAMA_TOKEN_ATTR_NORMAL
    | lib.LLAMA_TOKEN_ATTR_CONTROL
    | lib.LLAMA_TOKEN_ATTR_USER_DEFINED
    | lib.LLAMA_TOKEN_ATTR_BYTE
)
"""Of `enum llama_token_attr`; `<unused5>` is of two kinds, and some models do draw it."""
_ROTATES_IN_SECTIONS = (lib.LLAMA_ROPE_TYPE_MROPE, lib.LLAMA_ROPE_TYPE_IMROPE, lib.LLAMA_ROPE_TYPE_VISION)


class LibraryLog:
    """The last log lines of llama.cpp, kept instead of printed: sizes and the reason of a failure are only told there.

    The callback runs on any thread of the library, so it does nothing but append.
    """

    def __init__(self, max_lines: int = 2_000) -> None:
        self._lines: deque[tuple[int, str]] = deque(maxlen=max_lines)
        self._callback = lib.llama_log_callback(self._take)  # kept here: the library holds a bare pointer to it

    def install(self) -> None:
        """Replace the library's log, and that of llama-cpp-python, for the whole process."""
        lib.llama_log_set(self._callback, None)

    def clear(self) -> None:
        """Forget all lines, before an operation whose lines are wanted."""
        self._lines.clear()

    def lines(self) -> list[str]:
        """Return the lines since `clear`, oldest first."""
        return [line for _, line in self._lines]

    def reason(self) -> str:
        """Return the first error line since `clear`, the cause where several follow; empty if none was logged."""
        return next((line for level, line in self._lines if level == ERROR), "")

    def _take(self, level: int, text: bytes, _user_data: object) -> None:
        if level in (INFO, WARNING, ERROR):
            self._lines.append((level, text.decode("utf-8", "replace").strip()))


@functools.cache
def library_log() -> LibraryLog:
    """Start the library on the first call; return the log that then receives its lines."""
    log = LibraryLog()
    log.install()
    lib.llama_backend_init()
    return log


class Model:
    """Weights and vocabulary of one GGUF file, as llama.cpp holds them.

    Args:
        path: of a file that was checked before: the library aborts the process on some damaged ones.
        on_gpu: whether to put every layer on the GPU.
        report: called with the fraction read, 0 to 1.
        overrides: what is read in place of the file's own settings.

    Raises:
        UnsupportedModelError: llama.cpp does not run this model; the message holds its own words.
    """

    def __init__(
        self, path: Path, on_gpu: bool, report: Callable[[float], None], overrides: Overrides | None = None
    ) -> None:
        self.overrides = overrides or Overrides()
        log = library_log()
        log.clear()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = -1 if on_gpu else 0
        params.kv_overrides = entries = self.overrides.as_array()

        def go_on(fraction: float, _user_data: object) -> bool:
            report(fraction)
            return True

        params.progress_callback = callback = lib.llama_progress_callback(go_on)
        self.pointer: Any = lib.llama_model_load_from_file(os.fsencode(path), params)
        del callback, entries  # only needed until here
        if not self.pointer:
            raise UnsupportedModelError(f"llama.cpp cannot load {path}: {log.reason() or 'it does not say why'}.")
        self.load_lines = log.lines()
        self.vocab: Any = lib.llama_model_get_vocab(self.pointer)
        self.known_breakers: dict[tuple[str, ...], tuple[int, ...]] = {}  # see `backends.token_rules`
        self.vocab_size: int = lib.llama_vocab_n_tokens(self.vocab)

    def close(self) -> None:
        """Free the weights; every context of the model must be closed before."""
        if self.pointer:
            lib.llama_model_free(self.pointer)
            self.pointer = None

    @property
    def weights_bytes(self) -> int:
        return int(lib.llama_model_size(self.pointer))

    @property
    def num_layers(self) -> int:
        return int(lib.llama_model_n_layer(self.pointer))

    @property
    def sliding_window(self) -> int:
        """Window that llama.cpp applies to sliding layers; 0 where it slides none, however the model was trained."""
        return int(lib.llama_model_n_swa(self.pointer))

    @property
    def trained_context(self) -> int:
        return int(lib.llama_model_n_ctx_train(self.pointer))

    @property
    def can_shift(self) -> bool:
        """Whether cached keys can change position: not in recurrent models, nor with sectioned rotary embedding."""
        return not (self.is_recurrent or lib.llama_model_rope_type(self.pointer) in _ROTATES_IN_SECTIONS)

    @property
    def is_recurrent(self) -> bool:
        """Whether some of its layers, or all, hold one running state in place of keys and values."""
        return bool(lib.llama_model_is_recurrent(self.pointer) or lib.llama_model_is_hybrid(self.pointer))

    @property
    def writes_text(self) -> bool:
        """Whether it is a decoder: not an embedding model, nor one that needs an encoder's output."""
        return lib.llama_model_has_decoder(self.pointer) and not lib.llama_model_has_encoder(self.pointer)

    @property
    def bos_id(self) -> int | None:
        token = lib.llama_vocab_bos(self.vocab)
        return int(token) if token >= 0 else None

    @property
    def adds_bos(self) -> bool:
        return bool(lib.llama_vocab_get_add_bos(self.vocab))

    @functools.cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Every token that ends a text or a turn; HTML's `</s>`, a word of some files, only if they name it."""
        named = (lib.llama_vocab_eos(self.vocab), lib.llama_vocab_eot(self.vocab))
        return tuple(
            token
            for token, kind in enumerate(self._attributes)
            if lib.llama_vocab_is_eog(self.vocab, token)
            and (token in named or not kind & lib.LLAMA_TOKEN_ATTR_USER_DEFINED or self.name(token) != _HTML_END)
        )

    @functools.cached_property
    def _attributes(self) -> tuple[int, ...]:
        """`enum llama_token_attr` of each token: some 0.1 s at 262,144 tokens."""
        return tuple(int(lib.llama_vocab_get_attr(self.vocab, token)) for token in range(self.vocab_size))

    @property
    def control_texts(self) -> list[str]:
        """Spellings that `encode` reads as control tokens."""
        return self._texts_of(lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN)

    @property
    def user_defined_texts(self) -> list[str]:
        """Spellings that `encode` reads as other whole tokens."""
        return self._texts_of(lib.LLAMA_TOKEN_ATTR_USER_DEFINED)

    @functools.cached_property
    def unused_ids(self) -> tuple[int, ...]:
        """Tokens that fill the vocabulary up to the rows of the model's head: they stand for nothing."""
        return tuple(
            token for token, kind in enumerate(self._attributes) if kind & _KINDS == lib.LLAMA_TOKEN_ATTR_UNUSED
        )

    def _texts_of(self, attributes: int) -> list[str]:
        tokens = (token for token, kind in enumerate(self._attributes) if kind & attributes)
        return [self.name(token).decode("utf-8", "replace") for token in tokens]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; special tokens written out in it are parsed, none is added."""
        data = text.encode("utf-8", "replace")  # a lone surrogate has no UTF-8
        capacity = len(data) + 8
        while True:
            buffer = (lib.llama_token * capacity)()
            count = lib.llama_tokenize(self.vocab, data, len(data), buffer, capacity, False, True)
            if count >= 0:
                return list(buffer[:count])
            if -count <= capacity:
                raise RingsideError("llama.cpp cannot tokenise this text: it is too long.")
            capacity = -count

    @functools.cached_property
    def _shown_marks(self) -> dict[int, bytes]:
        """Control tokens that are shown all the same, see `models.reasoning.CONTROL_MARKS`."""
        found = ((self.encode(mark), mark.encode()) for mark in CONTROL_MARKS)
        return {ids[0]: mark for ids, mark in found if len(ids) == 1 and self._spelling(ids[0], True) == mark}

    def piece(self, token: int) -> bytes:
        """Return the bytes a token stands for: part of a character, several, or none for most control tokens."""
        return self._shown_marks.get(token) or self._spelling(token, False)

    def name(self, token: int) -> bytes:
        """Return the bytes a token stands for, of a control token its name."""
        return self._spelling(token, True)

    def _spelling(self, token: int, names_control: bool) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        length = lib.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, names_control)
        if length < 0:
            buffer = ctypes.create_string_buffer(-length)
            length = lib.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, names_control)
        return buffer.raw[:length]


def gpu_offload_supported() -> bool:
    """Say whether this build of llama.cpp was compiled for a GPU and finds one."""
    library_log()
    return bool(lib.llama_supports_gpu_offload())
