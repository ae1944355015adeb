"""The numbers of the family table, held to their bounds."""

from __future__ import annotations

import pytest
import torch

from tests.models.family_checks import full_precision, half_precision
from tests.models.family_table import tables
from tests.models.tiny_models import FAMILIES

BOUNDS = {torch.bfloat16: (0.08, 0.88), torch.float16: (0.012, 0.97)}
"""Largest mean error over the spread of the logits, least share of equal most likely tokens."""


@pytest.mark.parametrize("family", FAMILIES)
def test_16_bits_stay_within_their_bounds_and_as_close_as_transformers_in_16_bits(family: str) -> None:
    for dtype, (error, same_top) in BOUNDS.items():
        found = half_precision(family, dtype)
        assert found.error < error
        assert found.error < 2 * found.stock_error  # one token sent to another expert counts for much
        assert found.same_top >= same_top


def test_the_table_has_a_row_a_family_with_what_was_measured() -> None:
    lines = list(tables(["gemma3_text", "phimoe"]))
    (ours,) = (line for line in lines if line.startswith("| gemma3_text "))
    (stock,) = (line for line in lines if line.startswith("| phimoe "))
    assert f"| 2 sliding, 1 full | {full_precision('gemma3_text').error:.0e}, 100% |" in ours
    assert "4 sliding" in stock
    assert {line.count("|") for line in lines if line.startswith("| ")} == {7, 4}
