"""Sampling: every setting at its edges, against a slow and plain reading of the documented order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.draws import uniform
from backends.requests import Sampling
from models.sampling import INVALID_TOKEN, RecentTokens, draw

PLAIN = Sampling(temperature=1.0, top_k=None, top_p=1.0)


def reference_draw(logits: Sequence[float], sampling: Sampling, number: float, recent: Sequence[int]) -> int:
    """The documented order, in plain Python floats."""
    scores = dict(enumerate(logits))
    for token in set(recent):
        penalty = sampling.repetition_penalty
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    if sampling.temperature == 0:
        return max(scores, key=lambda token: (scores[token], -token))
    ranked = sorted(scores, key=lambda token: -scores[token])[: sampling.top_k]
    peak = scores[ranked[0]]
    total = sum(math.exp(scores[token] - peak) for token in ranked)
    kept: list[int] = []
    reached = 0.0
    for token in ranked:
        if kept and reached >= sampling.top_p:
            break
        kept.append(token)
        reached += math.exp(scores[token] - peak) / total
    if sampling.min_p > 0:
        kept = [token for token in kept if scores[token] >= peak + math.log(sampling.min_p)]
    weights = {token: math.exp((scores[token] - peak) / sampling.temperature) for token in sorted(kept)}
    target, reached = number * sum(weights.values()), 0.0
    for token, weight in weights.items():
        reached += weight
        if reached > target:
            return token
    return max(token for token, weight in weights.items() if weight > 0)


@settings(max_examples=300, deadline=None)
@given(
    # Distinct logits, and draws and cuts away from their edges, so that rounding decides nothing.
    logits=st.lists(st.integers(-800, 800), min_size=2, max_size=40, unique=True).map(
        lambda values: [value / 97 for value in values]
    ),
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.0, 3.0]),
    top_k=st.one_of(st.none(), st.integers(1, 50)),
    top_p=st.sampled_from([0.0, 0.1234, 0.5678, 0.9512, 1.0]),
    min_p=st.sampled_from([0.0, 0.0123, 0.3456]),
    penalty=st.sampled_from([1.0, 0.7, 1.3]),
    seed=st.integers(0, 2**64 - 1),
    recent=st.lists(st.integers(0, 1), max_size=5),
)
def test_draws_what_the_documented_order_draws(
    logits: list[float],
    temperature: float,
    top_k: int | None,
    top_p: float,
    min_p: float,
    penalty: float,
    seed: int,
    recent: list[int],
) -> None:
    sampling = Sampling(temperature, top_k, top_p, min_p, penalty)
    number = uniform(seed, 0)
    drawn = draw(torch.tensor(logits, dtype=torch.float64), sampling, number, torch.tensor(recent, dtype=torch.long))
    assert int(drawn) == reference_draw(logits, sampling, number, recent)


@pytest.mark.parametrize("spread", [0.01, 0.5, 3.0])
def test_a_large_vocabulary_is_cut_at_top_p_whether_a_few_tokens_reach_it_or_not(spread: float) -> None:
    logits = torch.randn(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * spread
    sampling = Sampling(temperature=0.9, top_k=None, top_p=0.777)
    for index in range(20):
        number = uniform(11, index)
        assert int(draw(logits, sampling, number)) == reference_draw(logits.tolist(), sampling, number, [])


def test_rows_are_drawn_as_if_alone() -> None:
    logits_BV = torch.randn(5, 60, generator=torch.Generator().manual_seed(1))
    numbers_B = torch.tensor([uniform(3, index) for index in range(5)], dtype=torch.float64)
    recent_BN = torch.arange(20).reshape(5, 4)
    sampling = Sampling(top_k=20, min_p=0.01, repetition_penalty=1.2)
    together = draw(logits_BV, sampling, numbers_B, recent_BN)
    alone = [draw(logits_BV[row], sampling, float(numbers_B[row]), recent_BN[row]) for row in range(5)]
    assert together.tolist() == [int(token) for token in alone]


@pytest.mark.parametrize("top_k", [None, 3, 5, 6])
def test_frequencies_are_the_probabilities(top_k: int | None) -> None:
    logits = torch.tensor([0.0, 2.0, -1.0, 1.0, 0.5])
    counts = torch.zeros(5)
    numbers = torch.arange(2000, dtype=torch.float64) / 2000
    drawn = draw(logits.expand(2000, 5), Sampling(temperature=0.7, top_k=top_k, top_p=1.0), numbers)
    counts.scatter_add_(0, drawn, torch.ones(2000))
    kept = logits if top_k != 3 else logits.masked_fill(logits < 0.5, -math.inf)
    torch.testing.assert_close(counts / 2000, (kept / 0.7).softmax(0), atol=1e-3, rtol=0)


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-300, 1e-6])
def test_tiny_temperatures_are_greedy(temperature: float) -> None:
    logits = torch.tensor([1.0, 3.0, 2.9999, -5.0])
    for top_k in (None, 2):
        assert int(draw(logits, Sampling(temperature, top_k, 1.0), 0.999999)) == 1


def test_the_lowest_id_wins_a_greedy_tie() -> None:
    assert int(draw(torch.tensor([1.0, 2.0, 2.0]), Sampling(temperature=0))) == 1


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
def test_equal_logits_are_drawn_in_id_order(number: float) -> None:
    assert int(draw(torch.zeros(7), PLAIN, number)) == min(int(number * 7), 6)


def test_the_last_number_below_one_never_draws_an_impossible_token() -> None:
    logits = torch.tensor([-math.inf, 0.1, 0.3, -math.inf])
    for number, expected in ((0.0, 1), (1 - 2**-53, 2)):
        assert int(draw(logits, PLAIN, number)) == expected


def test_top_p_of_zero_keeps_one_and_of_one_keeps_all() -> None:
    logits = torch.tensor([0.0, 0.1, 0.05])
    assert {int(draw(logits, Sampling(1.0, None, 0.0), number / 50)) for number in range(50)} == {1}
    assert {int(draw(logits, Sampling(1.0, None, 1.0), number / 50)) for number in range(50)} == {0, 1, 2}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), PLAIN, Sampling(top_k=2), Sampling(top_k=None, top_p=0.5)], ids=str
)
def test_logits_that_are_not_numbers_are_reported_as_an_invalid_token(bad: float, sampling: Sampling) -> None:
    assert int(draw(torch.tensor([0.0, 1.0, bad, 2.0]), sampling, 0.5)) == INVALID_TOKEN


def test_no_possible_token_is_reported_as_an_invalid_token() -> None:
    for sampling in (PLAIN, Sampling(temperature=0), Sampling(top_k=2)):
        assert int(draw(torch.full((4,), -math.inf), sampling, 0.5)) == INVALID_TOKEN


def test_the_logits_given_are_left_alone() -> None:
    logits = torch.tensor([2.0, 1.0, -1.0])
    before = logits.clone()
    draw(logits, Sampling(repetition_penalty=1.5, min_p=0.1), 0.5, torch.tensor([0, 2]))
    assert torch.equal(logits, before)


@settings(max_examples=100, deadline=None)
@given(
    tokens=st.lists(st.integers(0, 9), min_size=2, max_size=60),
    split=st.integers(1, 59),
    window=st.one_of(st.none(), st.integers(1, 12)),
)
def test_recent_tokens_are_the_last_ones_whatever_was_known_at_the_start(
    tokens: list[int], split: int, window: int | None
) -> None:
    split = min(split, len(tokens))
    recent = RecentTokens(window, 10, torch.device("cpu"))
    recent.restart([9] * 20)
    recent.restart(tokens[:split])
    for token in tokens[split:]:
        recent.push(torch.tensor([token]))
    assert set(recent.ids_N.tolist()) == set(tokens if window is None else tokens[-window:])


def test_recent_tokens_never_move_or_grow() -> None:
    for window in (None, 4):
        recent = RecentTokens(window, 10, torch.device("cpu"))
        recent.restart([1, 2])
        address, size = recent.ids_N.data_ptr(), recent.ids_N.nbytes
        for token in range(50):
            recent.push(torch.tensor([token % 10]))
        assert (recent.ids_N.data_ptr(), recent.ids_N.nbytes) == (address, size)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=None, top_p=0.95),
        Sampling(top_k=None, top_p=0.0),
        Sampling(top_k=None, top_p=0.999999),
        Sampling(top_k=None, top_p=1.0, min_p=0.02),
        Sampling(top_k=None, top_p=1.0, typical_p=0.9),
        Sampling(top_k=None, top_p=1.0, typical_p=0.1),
        Sampling(top_k=None, top_p=0.8, typical_p=0.999),
        Sampling(top_k=None, top_p=1.0, top_n_sigma=1.5),
    ],
)
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 8.0])
def test_a_row_alone_where_candidates_are_taken_out_draws_what_it_draws_beside_another(
    sampling: Sampling, spread: float
) -> None:
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(3)) * spread
    logits[::7] = -torch.inf
    for number in torch.linspace(0, 0.9999, 23).tolist():
        together = draw(torch.stack((logits, logits.flip(0))), sampling, number)[0]
        assert draw(logits, sampling, number) == together == draw(logits.unsqueeze(0), sampling, number)[0]
