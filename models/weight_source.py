"""What fills a parameter: some rows of a tensor in a file, in the order the decoder wants them.

`models.weight_names` says which rows, `models.stored_tensor` reads them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from models.stored_tensor import StoredTensor
from models.weight_names import Part

Span = tuple[int, int]
"""First index and the one behind the last."""


@dataclass(frozen=True)
class Source:
    """What fills a parameter, or one expert of it: some rows of a tensor in a file."""

    tensor: StoredTensor
    part: Part

    @property
    def is_plain(self) -> bool:
        """Whether rows can be used in the order they lie in."""
        part = self.part
        in_order = not part.transposed and part.paired_heads is None and part.rows.step in (None, 1)
        return in_order and not self.part.is_stack and len(self.tensor.shape) > 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        shape = list(self.tensor.shape)
        if self.part.transposed:
            shape[-2:] = reversed(shape[-2:])
        row_dim = 1 if self.part.is_stack else 0
        shape[row_dim] = len(range(*self.part.rows.indices(shape[row_dim])))
        return tuple(shape)

    def whole(self) -> Tensor:
        """Read everything, in the order the decoder wants it."""
        values = self.tensor.whole()
        if self.part.transposed:
            values = values.transpose(-1, -2)
        values = values[:, self.part.rows] if self.part.is_stack else values[self.part.rows]
        if self.part.paired_heads is not None:
            values = _unpair(values, self.part.paired_heads)
        return values + self.part.offset if self.part.offset else values

    def single_experts(self) -> Iterator[Source]:
        """Return the source of every expert in this tensor, as a parameter of its own."""
        if self.part.expert is not None:
            yield replace(self, part=self.part.alone(self.part.expert))
            return
        for expert in range(self.tensor.shape[0]):
            yield Source(self.tensor.at(expert), self.part.alone(expert))

    def experts(self, span: Span) -> Tensor:
        """Read some experts of a stack."""
        return replace(self, tensor=self.tensor.part(*span)).whole()

    def slices(self, span: Span) -> Iterator[Tensor]:
        """Read a span of the result's first dimension some rows at a time; only where `is_plain`."""
        first, _, _ = self.part.rows.indices(self.tensor.shape[0])
        for rows in self.tensor.part(first + span[0], first + span[1]).slices():
            yield rows + self.part.offset if self.part.offset else rows


def one_by_one(sources: Mapping[str, list[Source]]) -> dict[str, list[Source]]:
    """Return the sources with every expert's weights under a name of their own, as int8 layers hold them.

    `layers.0.moe.up.weight` becomes `layers.0.moe.up.0.weight`, `layers.0.moe.up.1.weight` and so on.
    """
    apart: dict[str, list[Source]] = {}
    for source in itertools.chain.from_iterable(sources.values()):
        for single in source.single_experts() if source.part.is_expert else (source,):
            apart.setdefault(single.part.parameter, []).append(single)
    return apart


def _unpair(values: Tensor, num_heads: int) -> Tensor:
    """Bring rotary pairs that are neighbours to half a head's distance: rows (2i, 2i + 1) to (i, i + half)."""
    by_pair = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return by_pair.transpose(1, 2).reshape(values.shape)
