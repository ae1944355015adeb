"""Comparisons: run by run in real workers with the echo backend, and the figures taken from curves known by hand."""

from __future__ import annotations

import itertools
import json
from contextlib import closing
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from app.proof.commands import register
from app.proof.compare import Comparison, Experiment, outcomes, run
from app.proof.compare_report import report
from app.proof.configurations import parse_configurations
from app.proof.curves import bytes_slope, first_difference, rate_curve, settled_from, speed_at
from app.proof.measurement import MAX_POINTS, Measurement, Point
from app.worker_messages import Update
from backends.errors import BadRequestError
from backends.events import MemoryFigures, PrefillProgress
from backends.requests import CachePolicy, LoadRequest

ECHO = LoadRequest("echo", "", window=32, options={"rate": "max"})


def measured(rate: float = 100.0, bytes_per_token: int = 0, num_tokens: int = 5000, prompt: int = 0) -> Measurement:
    measurement = Measurement("run", ECHO, num_prompt_tokens=prompt)
    measurement.points = [
        Point(tokens, tokens / rate, 10**9 + bytes_per_token * tokens) for tokens in range(10, num_tokens + 1, 10)
    ]
    return measurement


def update(tokens: int, process_bytes: int = 100, prefill: PrefillProgress | None = None) -> Update:
    memory = MemoryFigures(tokens, 64, 3 * tokens, tokens + 7, min(tokens, 64), 64, 0)
    ids = () if prefill else (tokens,)
    first_s = tokens / 10 if ids else None
    return Update(1, "x", ids, tokens, tokens / 10, first_s, prefill, 0.0, memory, process_bytes)


# Configurations


def test_without_any_the_three_policies_are_compared() -> None:
    configurations = parse_configurations([], ECHO)
    assert [each.load.policy for each in configurations] == list(CachePolicy)
    assert configurations[0].label == "echo, ring W=32 S=4 rate=max"


def test_a_configuration_changes_what_it_names_and_keeps_the_rest() -> None:
    (first, second) = parse_configurations(
        ["policy=as-trained,backend=llamacpp,sinks=none,label=mine", "window=64,precision=int8,kv_type=fp8,fault=none"],
        ECHO,
    )
    assert (first.label, first.load.policy, first.load.backend) == ("mine", CachePolicy.AS_TRAINED, "llamacpp")
    assert (first.load.sinks, first.load.window) == (None, 32)
    assert (second.load.window, second.load.precision) == (64, "int8")
    assert (second.load.kv_type, "KV fp8" in second.label) == ("fp8", True)
    assert second.load.options == {"rate": "max", "fault": "none"}


def test_equal_labels_are_told_apart() -> None:
    labels = [each.label for each in parse_configurations(["label=a", "label=a", "label=b"], ECHO)]
    assert labels == ["a (1)", "a (2)", "b"]


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (["policy=ring"], "1 configurations cannot be compared"),
        (["policy=ring"] * 5, "5 configurations cannot be compared"),
        (["policy=rign", "policy=full"], "no cache policy 'rign'.*Choose one of ring, as trained, full"),
        (["window=many", "policy=full"], "window of 'many' is not a whole number"),
        (["window", "policy=full"], "'window' in the configuration 'window' is not of the form key=value"),
        (["device=tpu", "policy=full"], "no device 'tpu'"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_by_name(specs: list[str], words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        parse_configurations(specs, ECHO)


# Figures


def test_a_steady_rate_is_found_at_every_depth_that_was_passed() -> None:
    measurement = measured(rate=250.0, num_tokens=5000)
    assert speed_at(measurement, 1024) == pytest.approx(250.0)
    assert speed_at(measurement, 4096) == pytest.approx(250.0)
    assert speed_at(measurement, 16_384) is None
    _, rates = rate_curve(measurement.points)
    assert rates == pytest.approx([250.0] * len(rates))
    assert len(rates) <= 200


def test_depth_counts_the_prompt() -> None:
    assert speed_at(measured(num_tokens=200, prompt=900), 1024) == pytest.approx(100.0)
    assert speed_at(measured(num_tokens=200, prompt=2000), 1024) is None


def test_the_slope_of_memory_is_taken_past_a_full_window_only() -> None:
    measurement = measured(bytes_per_token=0)
    measurement.points = [Point(n, n / 10, 1000 * min(n, 500)) for n in range(0, 2000, 10)]
    before, after = bytes_slope(measurement, "process_bytes", 0), bytes_slope(measurement, "process_bytes", 500)
    assert before is not None
    assert after is not None
    assert before.value > 100
    assert (after.value, after.low, after.high) == (0, 0, 0)


def test_a_growing_cache_has_its_growth_to_the_byte() -> None:
    slope = bytes_slope(measured(bytes_per_token=18_432), "process_bytes")
    assert slope is not None
    assert slope.value == pytest.approx(18_432, rel=1e-6)
    assert bytes_slope(measured(), "kv_held_bytes") is None  # never reported


def test_texts_part_where_they_first_differ() -> None:
    assert first_difference([1, 2, 3], [1, 5, 3]) == 1
    assert first_difference([1, 2, 3], [1, 2]) is None
    assert first_difference("abc", "abd") == 2


def test_a_measurement_keeps_peak_and_first_token_and_stays_small_over_a_long_run() -> None:
    measurement = Measurement("run", ECHO)
    measurement.note(update(0, process_bytes=900, prefill=PrefillProgress(8, 8)))
    for tokens in range(1, 3 * MAX_POINTS):
        measurement.note(update(tokens))
    assert measurement.peak_process_bytes == 900
    assert measurement.first_token_s == pytest.approx(0.1)
    assert (measurement.num_prompt_tokens, len(measurement.token_ids)) == (8, 3 * MAX_POINTS - 1)
    assert MAX_POINTS // 2 <= len(measurement.points) <= MAX_POINTS
    gaps = {b.tokens - a.tokens for a, b in itertools.pairwise(measurement.points)}
    assert len(gaps) <= 2  # evenly thinned


# Whole comparisons


def test_policies_are_run_in_fresh_workers_and_told_apart_by_their_slopes() -> None:
    comparison = Comparison(Experiment(num_tokens=600))
    configurations = parse_configurations(["rate=1500,label=bounded", "policy=full,rate=1500,label=growing"], ECHO)
    stages = {step.stage for step in run(comparison, configurations)}
    bounded, growing = outcomes(comparison)
    assert "Writing" in stages
    assert bounded.kv_slope is not None
    assert growing.kv_slope is not None
    assert abs(bounded.kv_slope.value) < 5 < 500 < growing.kv_slope.value
    assert (bounded.num_tokens, growing.first_difference, growing.same_tokens) == (600, None, 600)
    assert [settled_from(each) for each in comparison.measurements] == [36, 36]


def test_a_configuration_that_fails_keeps_its_sentence_and_the_next_one_still_runs() -> None:
    comparison = Comparison(Experiment(num_tokens=50))
    specs = ["fail_at=20,label=breaks", "load_error=The file is cut.,label=does not load", "label=works"]
    list(run(comparison, parse_configurations(specs, ECHO)))
    breaks, unloaded, works = outcomes(comparison)
    assert "failed" in breaks.error
    assert 0 < breaks.num_tokens < 50
    assert "The file is cut." in unloaded.error
    assert (works.error, works.num_tokens) == ("", 50)
    assert any("The file is cut." in sentence for sentence in report(comparison).sentences)


def test_stopping_keeps_what_was_measured() -> None:
    comparison = Comparison(Experiment(num_tokens=100_000))
    steps = run(comparison, parse_configurations(["rate=400", "policy=full"], ECHO))
    with closing(steps):
        for step in steps:
            if step.stage == "Writing" and step.done > 100:
                break
    comparison.stopped = True
    (only,) = outcomes(comparison)
    assert only.num_tokens > 100
    shown = report(comparison)
    assert shown.sentences[0].startswith("Stopped early")
    json.dumps(shown.results)


def test_the_command_prints_an_outcome_a_line_and_writes_the_page(tmp_path: Path) -> None:
    cli = Typer()
    register(cli)
    arguments = ["compare", "--backend", "echo", "-n", "200", "--json", "-o", str(tmp_path / "out.html")]
    result = CliRunner().invoke(cli, [*arguments, "-r", "rate=2000", "-r", "rate=2000,policy=full"])
    assert result.exit_code == 0, result.output
    labels = [json.loads(line)["label"] for line in result.stdout.splitlines()]
    assert labels == ["echo, ring W=512 S=4 rate=2000", "echo, full rate=2000"]
    assert "Keys and values held" in (tmp_path / "out.html").read_text("utf-8")
    assert json.loads((tmp_path / "out.json").read_text("utf-8"))["runs"][0]["text"]
