"""DRY's repeats: whatever the window and however the text came to be, those that its definition finds."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.repeats import KeptRuns, RepeatedRuns, repeat_penalties
from backends.requests import Sampling

DRY = Sampling(dry_multiplier=0.8, dry_allowed_length=2, dry_breakers=())

sequences = st.lists(st.integers(0, 3), max_size=60) | st.builds(
    lambda period, times, rest: period * times + rest,
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.integers(1, 40),
    st.lists(st.integers(0, 3), max_size=5),
)
samplings = st.builds(
    lambda **changes: replace(DRY, **changes),
    dry_window=st.sampled_from([1, 2, 5, 16, 64, None]),
    dry_allowed_length=st.sampled_from([1, 2, 3]),
    dry_base=st.sampled_from([1.0, 1.0000005, 1.75, 4.0, 100.0]),  # caps of none, no cap, 158, 64 and 19 tokens
)


def repeat_penalty(sampling: Sampling, length: int) -> float:
    return float(repeat_penalties(sampling, np.array([length]))[0])


def penalties_of(runs: RepeatedRuns) -> dict[int, float]:
    tokens, penalties = runs.penalties()
    found = dict(zip(tokens.tolist(), penalties.tolist(), strict=True))
    assert [found[token] for token in tokens.tolist()] == penalties.tolist(), "each time the same"
    return found


def by_definition(tokens: Sequence[int], breakers: Collection[int], sampling: Sampling) -> dict[int, float]:
    """Return the penalties of DRY, found by comparing the end of the window with every place in it."""
    window = list(tokens if sampling.dry_window is None else tokens[-sampling.dry_window :])
    since = next((place for place, token in enumerate(reversed(window)) if token in breakers), len(window))
    found: dict[int, float] = {}
    for place in range(len(window) - 1):
        length = 0
        while length < min(place + 1, since) and window[place - length] == window[-1 - length]:
            length += 1
        token, penalty = window[place + 1], repeat_penalty(sampling, length)
        if penalty and token not in breakers:
            found[token] = max(found.get(token, 0.0), penalty)
    return found


@settings(max_examples=300, deadline=None)
@given(tokens=sequences, more=sequences, breakers=st.sets(st.integers(0, 3), max_size=1), sampling=samplings)
def test_penalties_are_those_of_the_definition_token_by_token(
    tokens: list[int], more: list[int], breakers: set[int], sampling: Sampling
) -> None:
    runs = RepeatedRuns(sampling, breakers)
    runs.restart(tokens)
    assert penalties_of(runs) == by_definition(tokens, breakers, sampling)
    for place, token in enumerate(more):
        runs.push(token)
        assert penalties_of(runs) == by_definition(tokens + more[: place + 1], breakers, sampling)


@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(sequences, min_size=1, max_size=5),
    keeps=st.lists(st.integers(0, 60), min_size=5),
    sampling=samplings,
)
def test_a_text_that_goes_on_goes_back_or_changes_is_what_it_is_anew(
    texts: list[list[int]], keeps: list[int], sampling: Sampling
) -> None:
    """As replies do that are continued, written again, or follow an edited message."""
    kept, text = KeptRuns(), [0]
    for more, keep in zip(texts, keeps, strict=False):
        text = (text[:keep] if keep < 40 else text) + more
        runs = kept.at(sampling, (3,), text)
        assert penalties_of(runs) == by_definition(text, (3,), sampling)
        runs.push(0)
        text = [*text, 0]


def test_settings_that_change_are_taken_up() -> None:
    kept, text = KeptRuns(), [0, 1, 2, 0, 1]
    assert penalties_of(kept.at(DRY, (), text)) == {2: pytest.approx(0.8)}
    assert penalties_of(kept.at(replace(DRY, dry_multiplier=2.0, temperature=0.1), (), text)) == {2: 2.0}
    assert penalties_of(kept.at(DRY, (1,), text)) == {}


def test_a_repeat_is_found_however_far_back_it_was() -> None:
    made = random.Random(1)
    text = [7, 8, 9, 10, *(made.randrange(100, 30_000) for _ in range(20_000)), 7, 8, 9]
    far = replace(DRY, dry_window=None)
    for sampling in (far, replace(far, dry_window=30_000)):
        runs = RepeatedRuns(sampling, ())
        runs.restart(text)
        assert penalties_of(runs) == {10: repeat_penalty(sampling, 3)}
    near = RepeatedRuns(replace(far, dry_window=8_192), ())
    near.restart(text)
    assert penalties_of(near) == {}


@pytest.mark.parametrize("period", [1, 7])
def test_going_round_in_circles_costs_as_much_a_token_at_any_length(period: int) -> None:
    """Counted in passages that are looked at, of which a loop has most."""

    def looked_at(num_tokens: int) -> int:
        runs = RepeatedRuns(replace(DRY, dry_window=None), ())
        runs.restart([place % period for place in range(num_tokens)])
        return len(runs.penalties()[0])

    assert looked_at(2_000) <= 170
    assert looked_at(20_000) <= 170


def test_memory_of_a_window_does_not_grow_with_the_text() -> None:
    made = random.Random(2)
    runs = RepeatedRuns(replace(DRY, dry_window=500), ())

    def most_states(num_tokens: int) -> int:
        most = 0
        for _ in range(num_tokens):
            runs.push(made.randrange(50))
            most = max(most, sum(len(automaton._lengths) for automaton in runs._automata))
        assert len(runs._held) <= 1_000
        return most

    assert most_states(2_000) <= 2 * 1_500 + 2
    assert most_states(6_000) <= 2 * 1_500 + 2


def test_passages_that_recur_take_no_memory_where_breakers_part_them() -> None:
    runs = RepeatedRuns(replace(DRY, dry_window=None), (0,))
    runs.restart([0, *range(1, 100)] * 3)
    num_states = len(runs._automata[0]._lengths)
    runs.restart([0, *range(1, 100)] * 50)
    assert len(runs._automata[0]._lengths) == num_states
    assert sys.getsizeof(runs._automata[0]._more) < 1_000


def test_dry_grows_with_each_repeated_token_and_never_beyond_a_number() -> None:
    sampling = Sampling(dry_multiplier=2.0, dry_base=3.0, dry_allowed_length=2)
    assert [repeat_penalty(sampling, length) for length in range(5)] == [0.0, 0.0, 2.0, 6.0, 18.0]
    for base in (1.0, 1.0000001, 1.00001, 1.75, 100.0):
        extreme: dict[str, Any] = {"dry_multiplier": 100.0, "dry_base": base}
        assert np.isfinite(np.float32(repeat_penalty(replace(sampling, **extreme), 1_000_000)))
