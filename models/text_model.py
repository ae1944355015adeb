"""What the ring backend needs of a model and of the cache its texts lie in.

`models.decoder` with `models.ring_cache` is the usual pair. `models.stock_model` runs stock transformers models the
same way, for families our decoder does not know.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch
from torch import Tensor

Logits = Literal["all", "last", "none"]


class Snapshot(Protocol):
    """Exact copy of a cache at one moment."""

    @property
    def nbytes(self) -> int: ...


class TextCache(Protocol):
    """Keys and values of one text."""

    @property
    def device(self) -> torch.device: ...

    @property
    def position(self) -> int:
        """Of the next token: the tokens ever fed."""
        ...

    @property
    def nbytes(self) -> int:
        """Allocated."""
        ...

    @property
    def held_nbytes(self) -> int:
        """Of what the next token can attend to."""
        ...

    @property
    def capacity_tokens(self) -> int:
        """Slots of the largest bounded layer; 0 where none is bounded."""
        ...

    @property
    def can_overwrite(self) -> bool:
        """Whether a text can get so long that going back needs a snapshot."""
        ...

    @property
    def has_overwritten(self) -> bool:
        """Whether it is that long now."""
        ...

    def reset(self, *, planned_length: int = 0) -> None:
        """Forget everything; the text to come has at least that many tokens."""
        ...

    def rewind(self, length: int) -> None:
        """Forget all but the first `length` tokens; only where nothing was overwritten."""
        ...

    def snapshot(self, device: torch.device | str | None = None) -> Any:
        """Return a `Snapshot` for `restore`."""
        ...

    def restore(self, snapshot: Any) -> None: ...


class TextModel(Protocol):
    """A model that feeds tokens into caches of its own kind and gives logits."""

    @property
    def vocab_size(self) -> int: ...

    def __call__(self, tokens_BT: Tensor, cache: Any, logits: Logits = "last") -> Tensor:
        """Feed T tokens a row; return the logits of all, of the last, or of none: [B, T or 1 or 0, V]."""
        ...

    def decode_step(self, tokens_B: Tensor, cache: Any, static: bool = False) -> Tensor:
        """Feed one token a row; return its logits [B, V]. `static` is for models that `can_be_captured`."""
        ...

    def can_be_captured(self, cache: Any) -> bool:
        """Whether a step is one fixed sequence of operations, so that a CUDA graph can hold it."""
        ...

    def must_start_over(self, cache: Any, num_tokens: int) -> bool:
        """Whether that many more tokens make what the cache holds worthless (longrope past its original context).

        The cache must then be reset with the `planned_length` and be fed the whole text again.
        """
        ...
