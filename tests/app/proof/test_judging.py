"""Verdicts from evidence: each right for its numbers, and each with a remedy where something is wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from app.proof import judging
from app.proof.doctor_report import verdict_text
from app.proof.measurement import Measurement, Point
from app.proof.verdicts import ORDERS, QUESTIONS, REMEDIES
from backends.contract import LoadedModel
from backends.requests import CachePolicy, LoadRequest
from models.config import LayerConfig, ModelConfig
from models.findings import Fault, Finding

SLIDING, FULL = LayerConfig(trained_window=64, rope=None), LayerConfig(trained_window=None, rope=None)
CONFIG = ModelConfig("gemma3", 100, 32, 64, 4, 2, 8, (SLIDING, SLIDING, FULL))
LOAD = LoadRequest("ring", "model.gguf", window=64, sinks=4)
SETTLED = 68


def run_of(kv_per_token: int = 0, num_tokens: int = 2000) -> Measurement:
    """A reply whose cache grows by so many bytes a token."""
    run = Measurement("run", LOAD)
    run.model = LoadedModel(
        "m", "gemma3", "cpu", "int8", CachePolicy.RING, 2, 1, 64, 64, 4, None, 100, 10**9, 1000, has_chat_template=False
    )
    time_s = 0.0
    for tokens in range(10, num_tokens + 1, 10):
        time_s += 0.1
        run.points.append(Point(tokens, time_s, 10**9, tokens, kv_per_token * tokens + 68_000))
    return run


@pytest.mark.parametrize(
    ("config", "load", "status", "words"),
    [
        (CONFIG, LOAD, "good", "the 1 full ones are bounded, which is approximate"),
        (CONFIG, replace(LOAD, policy=CachePolicy.AS_TRAINED), "good", "slides, and the backend honours it"),
        (replace(CONFIG, layers=(FULL, FULL)), LOAD, "bad", "No layer was trained with a window"),
        (replace(CONFIG, architecture="llama"), replace(LOAD, backend="llamacpp"), "bad", "llama.cpp runs every layer"),
    ],
)
def test_whether_a_model_slides_depends_on_layers_and_backend(
    config: ModelConfig, load: LoadRequest, status: str, words: str
) -> None:
    verdict = judging.judge_sliding(config, load)
    assert verdict.status == status
    assert words in verdict.verdict
    assert verdict.remedy or status == "good"


def test_flat_bytes_pass_and_growing_ones_do_not() -> None:
    flat = judging.judge_bounds(LOAD, [], run_of(), SETTLED)
    growing = judging.judge_bounds(LOAD, [], run_of(kv_per_token=1000), SETTLED)
    assert (flat.status, growing.status) == ("good", "bad")
    assert "grow by 1,000 (1,000 to 1,000) bytes a token" in " ".join(growing.evidence)
    assert "66.4 KiB at 70 tokens" in " ".join(flat.evidence)


def test_a_policy_that_grows_is_no_fault() -> None:
    load = replace(LOAD, policy=CachePolicy.FULL)
    assert judging.judge_bounds(load, [], run_of(kv_per_token=1000), SETTLED).status == "good"


def test_a_run_too_short_to_sample_memory_proves_nothing() -> None:
    verdict = judging.judge_bounds(LOAD, [], run_of(kv_per_token=1000, num_tokens=80), SETTLED)
    assert verdict.status == "unsure"


@pytest.mark.parametrize("fault", list(REMEDIES))
def test_every_fault_is_named_and_has_a_remedy(fault: Fault) -> None:
    bounded = judging.judge_bounds(LOAD, [Finding("bounded", "probe", "Seen.", fault)], None, SETTLED)
    exact = judging.judge_exactness([Finding("exact", "probe", "Seen.", fault)])
    for verdict in (bounded, exact):
        assert verdict.status == "bad"
        assert fault in verdict.verdict
        assert REMEDIES[fault] in verdict.remedy
        assert "Seen." in verdict_text(verdict)


def test_where_nothing_was_probed_nothing_is_said_of_positions() -> None:
    assert judging.judge_exactness([]).status == "unsure"


def test_the_share_of_each_part_and_the_floor_of_memory_are_told() -> None:
    parts = {"weights": 0.006, "attention": 0.003, "outside PyTorch": 0.001}
    verdict = judging.judge_speed(run_of(), SETTLED, parts, bandwidth=200e9)
    told = " ".join(verdict.evidence)
    assert "weights 60%, attention 30%, outside PyTorch 10%" in told
    assert "at 200.0 GB/s takes at least 5.00 ms: 50% of a token's time" in told


def losses(worse_by: float, num_tokens: int = 1000) -> list[float]:
    """Losses around 3 nats, worse past the window by so much."""
    noise = random.Random(1)
    return [3 + noise.gauss(0, 1) + (worse_by if index >= SETTLED else 0) for index in range(num_tokens)]


VARIED = list(range(2000))
LOOPING = [1, 2, 3, 4, 5, 6, 7] * 300


@pytest.mark.parametrize(
    ("found", "written", "status", "words"),
    [
        ({"configured": 0.0, "full": 0.0}, VARIED, "good", "as well as with everything kept"),
        ({"configured": 0.0, "full": 0.0}, LOOPING, "bad", "the loop in its reply comes from sampling"),
        (
            {"configured": 1.0, "full": 0.0, "with sinks": 0.1, "as trained": 0.0},
            VARIED,
            "bad",
            "first tokens are gone",
        ),
        ({"configured": 0.3, "full": 0.0, "as trained": 0.0}, VARIED, "bad", "the full layers see only 64 tokens"),
        ({"configured": 0.3, "full": 0.0, "as trained": 0.3}, VARIED, "bad", "look at the positions"),
    ],
)
def test_what_explains_a_fall_is_named(found: dict[str, float], written: list[int], status: str, words: str) -> None:
    verdict = judging.judge_text(LOAD, {name: losses(worse) for name, worse in found.items()}, SETTLED, written)
    assert verdict.status == status
    assert words in verdict.verdict
    assert verdict.remedy or status == "good"


def test_too_few_scored_tokens_prove_nothing() -> None:
    short = {"configured": losses(0, SETTLED), "full": losses(0, SETTLED)}
    assert judging.judge_text(LOAD, short, SETTLED, VARIED).status == "unsure"


def test_repetition_counts_runs_that_came_before() -> None:
    assert judging.repeated_share(VARIED) == 0.0
    assert judging.repeated_share(LOOPING) == 1.0
    assert judging.repeated_share([1, 2, 3]) == 0.0


def test_every_symptom_walks_every_check_once() -> None:
    assert all(sorted(order) == sorted(QUESTIONS) for order in ORDERS.values())
    assert len({order[0] for symptom, order in ORDERS.items() if symptom}) == 3
