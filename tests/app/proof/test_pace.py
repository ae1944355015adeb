"""Is speed flat: noise is not taken for depth, depth not for noise, and a machine that slows down is told from both."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing

from app.proof import doctor, judging
from app.proof.doctor import Evidence, Visit
from app.proof.measurement import Measurement, Point
from app.proof.pace import CONTROL_TOKENS, looks_slower
from app.proof.verdicts import Verdict
from backends.requests import LoadRequest

LOAD = LoadRequest("echo", "", window=64, sinks=4, options={"rate": "max"})
SETTLED = 68
NUM_TOKENS = 2000
TOKEN_S = 0.032


def reply(seconds_at: Callable[[int], float], num_tokens: int = NUM_TOKENS) -> Measurement:
    """A reply whose token n takes `seconds_at(n)`."""
    run, time_s = Measurement("run", LOAD), 0.0
    for token in range(1, num_tokens + 1):
        time_s += seconds_at(token)
        run.points.append(Point(token, time_s, 10**9, token))
    return run


def short(seconds: float) -> Measurement:
    return reply(lambda token: seconds, SETTLED + CONTROL_TOKENS)


def judged(run: Measurement, control: Measurement | None = None) -> Verdict:
    return judging.judge_speed(run, SETTLED, None, None, control)


def growing(token: int) -> float:
    return TOKEN_S * (1 + 2 * token / NUM_TOKENS)


def slow_in_the_end(token: int) -> float:
    return TOKEN_S * (1.4 if token > NUM_TOKENS * 0.5 else 1)


def test_constant_time_per_token_is_flat() -> None:
    verdict = judged(reply(lambda token: TOKEN_S))
    assert verdict.status == "good"
    assert "changed by +0% (median), the fastest tenth's by +0%" in verdict.evidence[-1]


def test_bursts_of_noise_over_most_of_the_deep_tokens_are_not_taken_for_depth() -> None:
    drawn = random.Random(3)

    def noisy(token: int) -> float:
        is_hit = drawn.random() < (0.7 if token > NUM_TOKENS * 0.6 else 0.1)
        return TOKEN_S * (drawn.uniform(1.3, 1.6) if is_hit else drawn.uniform(1, 1.03))

    run = reply(noisy)
    verdict = judged(run)
    assert not looks_slower(run, SETTLED)
    assert verdict.status == "good"
    assert "(median), the fastest tenth's by +" in verdict.evidence[-1]


def test_growth_is_bad_once_a_short_reply_is_as_fast_as_the_beginning() -> None:
    run = reply(growing)
    verdict = judged(run, short(growing(SETTLED)))
    assert looks_slower(run, SETTLED)
    assert verdict.status == "bad"
    assert "Control, a short reply by a fresh worker right after" in verdict.evidence[-1]
    assert verdict.remedy


def test_growth_is_seen_through_noise() -> None:
    drawn = random.Random(4)
    run = reply(lambda token: growing(token) * (1.5 if drawn.random() < 0.4 else 1))
    assert judged(run, short(growing(SETTLED))).status == "bad"


def test_a_machine_that_slows_down_for_good_leaves_the_question_open() -> None:
    run = reply(slow_in_the_end)
    verdict = judged(run, short(TOKEN_S * 1.4))
    assert looks_slower(run, SETTLED)
    assert verdict.status == "unsure"
    assert "The machine slowed down" in verdict.verdict
    assert "Control" in verdict.evidence[-1]
    assert "Repeat it undisturbed" in verdict.remedy


def test_without_a_control_or_with_a_failed_one_depth_is_not_blamed() -> None:
    failed = short(TOKEN_S)
    failed.error = "The worker died."
    for control in (None, failed):
        verdict = judged(reply(growing), control)
        assert verdict.status == "unsure"
        assert "no short reply was measured" in verdict.verdict


def test_the_control_is_written_to_just_past_a_full_window_and_tells_how_far_it_is() -> None:
    evidence = Evidence(run=reply(growing))
    steps = list(doctor._control(Visit(LOAD, None), evidence, "flat"))
    assert evidence.control is not None
    assert len(evidence.control.token_ids) == SETTLED + CONTROL_TOKENS == steps[-1].done == steps[-1].total


def test_stopping_during_the_control_ends_its_worker_and_blames_nothing() -> None:
    evidence = Evidence(run=reply(growing))
    with closing(doctor._control(Visit(LOAD, None), evidence, "flat")) as steps:
        next(steps)
    assert evidence.control is not None
    assert judged(reply(growing), evidence.control).status == "unsure"
