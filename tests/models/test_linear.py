"""Int8 linear layers against plain arithmetic."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.linear import ActivationCoder, Int8Linear, int8_is_available, pack_rows, quantize_rows, quiet_packing

pytestmark = pytest.mark.skipif(not int8_is_available(), reason="this torch has no fbgemm")


def build(weight_OI: Tensor, bias_O: Tensor | None = None, block_rows: int = 1000) -> Int8Linear:
    layer = Int8Linear(weight_OI.shape[1], weight_OI.shape[0], bias_O is not None)
    with quiet_packing():
        layer.set_weight([pack_rows(*quantize_rows(block)) for block in torch.split(weight_OI, block_rows)])
    if bias_O is not None:
        layer.set_bias(bias_O)
    return layer


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exact(weight_OI: Tensor, inputs_TI: Tensor) -> Tensor:
    """What the layer should come to, in float64: only the weights are rounded to a byte."""
    weight, scales = quantize_rows(weight_OI)
    return (inputs_TI.double() @ (weight.double() * scales.double().unsqueeze(1)).T).float()


@pytest.mark.parametrize("out_features", [1, 7, 64, 333])
@pytest.mark.parametrize("in_features", [1, 31, 640])
def test_computes_the_product_with_the_rounded_weights(in_features: int, out_features: int) -> None:
    weight_OI, inputs_TI = random(out_features, in_features), random(5, in_features, seed=1)
    torch.testing.assert_close(build(weight_OI)(inputs_TI), exact(weight_OI, inputs_TI), atol=5e-3, rtol=1e-4)


def test_small_activations_survive_beside_a_huge_one() -> None:
    weight_OI, inputs_TI = random(64, 256), random(1, 256, seed=1)
    weight_OI[:, 7] = 0.0
    inputs_TI[:, 7] = 300.0
    expected = exact(weight_OI, inputs_TI)
    assert (build(weight_OI)(inputs_TI) - expected).norm() / expected.norm() < 0.01  # a single byte gives 0.7


def test_extreme_values_do_not_saturate_the_kernel() -> None:
    weight_OI, inputs_TI = torch.ones(8, 256), torch.ones(1, 256)
    torch.testing.assert_close(build(weight_OI)(inputs_TI), torch.full((1, 8), 256.0))
    torch.testing.assert_close(build(-weight_OI)(inputs_TI), torch.full((1, 8), -256.0))


@settings(max_examples=50, deadline=None)
@given(cuts=st.lists(st.integers(1, 11), max_size=4), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_a_token_does_not_depend_on_its_neighbours(cuts: list[int], scale: float) -> None:
    layer = build(random(50, 64))
    inputs_TI = random(12, 64, seed=2)
    inputs_TI[3] *= scale
    together = layer(inputs_TI)
    pieces = torch.cat([layer(piece) for piece in inputs_TI.tensor_split(sorted(set(cuts)))])
    assert torch.equal(together, pieces)


@pytest.mark.parametrize("block_rows", [1, 16, 33, 100])
def test_blocks_make_no_difference(block_rows: int) -> None:
    weight_OI, bias_O, inputs_TI = random(100, 48), random(100, seed=3), random(2, 3, 48, seed=1)
    torch.testing.assert_close(build(weight_OI, bias_O, block_rows)(inputs_TI), build(weight_OI)(inputs_TI) + bias_O)


def test_is_within_a_percent_of_the_float_layer() -> None:
    weight_OI, inputs_TI = random(256, 512), random(8, 512, seed=1)
    expected = inputs_TI @ weight_OI.T
    assert (build(weight_OI)(inputs_TI) - expected).norm() / expected.norm() < 0.01


def test_zero_rows_and_zero_inputs_give_zero() -> None:
    weight_OI = random(4, 16)
    weight_OI[2] = 0
    assert torch.equal(build(weight_OI)(torch.zeros(1, 16)), torch.zeros(1, 4))
    assert build(weight_OI)(random(3, 16))[:, 2].eq(0).all()


def test_layers_that_share_a_coder_keep_inputs_apart() -> None:
    coder = ActivationCoder()
    layers = [build(random(8, 16, seed=seed)) for seed in range(2)]
    inputs = [random(3, 16, seed=seed) for seed in (4, 5)]
    alone = [layer(tensor) for tensor in inputs for layer in layers]
    for layer in layers:
        layer._coder = coder
    shared = [layer(tensor) for tensor in inputs for layer in layers]
    assert all(torch.equal(mine, other) for mine, other in zip(alone, shared, strict=True))


def test_a_nan_input_shows_in_its_own_token_only() -> None:
    inputs_TI = random(3, 16)
    inputs_TI[1, 4] = torch.nan
    outputs = build(random(4, 16))(inputs_TI)
    assert outputs[1].isnan().all()
    assert outputs[[0, 2]].isfinite().all()


def test_counts_the_bytes_it_holds() -> None:
    layer = build(random(100, 48), random(100))
    assert layer.nbytes == 100 * 48 + 100 * 12 + 100 * 4
