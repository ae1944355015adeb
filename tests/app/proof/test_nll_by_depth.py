"""Loss by depth, on a tiny model through the real processes, and the arithmetic on losses known by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from app.proof.nll_by_depth import Case, DepthRun, drift, main, report
from app.proof.scoring import Losses
from backends.requests import CachePolicy, LoadRequest
from tests.backends.tiny_gguf import write_tiny_gguf

RING, AS_TRAINED = Case(CachePolicy.RING, 512), Case(CachePolicy.AS_TRAINED, 512)
NUM_TOKENS = 240
cli = typer.Typer()
cli.command()(main)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("depth")
    write_tiny_gguf(folder / "tiny.gguf", sliding_window=32, sliding_pattern=2, num_layers=4)
    (folder / "text.txt").write_text("The tide came in over the sand, and the keeper wrote down the hour. " * 8)
    return folder


def test_what_is_bounded_as_trained_equals_the_banded_cache_that_keeps_everything(folder: Path) -> None:
    arguments = [str(folder / "tiny.gguf"), str(folder / "text.txt"), "-n", str(NUM_TOKENS), "-w", "32", "-w", "64"]
    result = CliRunner().invoke(cli, [*arguments, "--threads", "1", "-o", str(folder / "out.html")])
    assert result.exit_code == 0, result.output
    found = json.loads((folder / "out.json").read_text())
    _, *rings, banded = found["cases"]
    named = [(case["policy"], case["window"]) for case in found["cases"]]
    assert named == [("as trained", 64), ("ring", 32), ("ring", 64), ("full", 64)]
    assert banded["largest_token_difference_nats"] < 1e-3
    for ring in rings:
        assert ring["largest_token_difference_nats"] > 0.01  # full layers of an untrained model do notice
    for case in found["cases"]:
        assert [end for end, _ in case["by_depth"]] == [100, 200]
    assert (found["num_tokens"], found["text"]) == (NUM_TOKENS, "text.txt")
    assert "“full, banded” differs by" in result.stdout
    assert f"at most, over {NUM_TOKENS} tokens." in result.stdout
    assert "</html>" in (folder / "out.html").read_text()


@pytest.mark.parametrize(
    ("changed", "said"), [({1: "missing.txt"}, "missing.txt is not a readable"), ({3: "nonsense"}, "none of auto")]
)
def test_a_wrong_argument_ends_with_one_sentence(folder: Path, changed: dict[int, str], said: str) -> None:
    arguments = [str(folder / "tiny.gguf"), str(folder / "text.txt"), "--precision", "float32"]
    for place, value in changed.items():
        arguments[place] = value
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert said in result.output.replace("\n", " ")


def known_run(above: float, per_token: float) -> DepthRun:
    """A run whose ring losses are that much above the reference, and more so with depth."""
    run = DepthRun(LoadRequest("ring", "m.gguf", precision="float32"), (512,), "t.txt", "0", 12_000)
    reference = [2.0 + index % 7 / 10 for index in range(12_000)]
    run.losses = {
        AS_TRAINED: Losses(reference),
        RING: Losses([loss + above + per_token * index for index, loss in enumerate(reference)]),
    }
    return run


def test_drift_is_the_slope_of_what_is_lost_and_not_of_the_text() -> None:
    steady, drifting = drift(known_run(0.05, 0.0), RING), drift(known_run(0.05, 1e-6), RING)
    assert steady is not None
    assert drifting is not None
    assert abs(steady.value) < 1e-9
    assert drifting.value == pytest.approx(1e-6, rel=1e-3)
    assert not drifting.is_flat


def test_sentences_name_the_mean_the_worst_stretch_and_the_drift() -> None:
    run = known_run(0.05, 1e-6)
    assert run.stretch_tokens == 200
    (ring,) = (sentence for sentence in report(run).sentences if "ring" in sentence)
    assert "+0.0560 nat off “as trained”, at worst +0.0619 over the 200 tokens before 12,000" in ring
    assert "drift from 4,000 tokens on +0.0100 nat per 10,000 tokens" in ring


def test_what_was_measured_before_an_interrupt_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(run: DepthRun, text: str) -> Iterator[None]:
        run.losses[run.reference] = Losses([2.0] * 200)
        yield
        raise KeyboardInterrupt

    monkeypatch.setattr("app.proof.nll_by_depth.measure", interrupted)
    arguments = [str(folder / "tiny.gguf"), str(folder / "text.txt"), "-n", "6000", "-o", str(folder / "cut.html")]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    (case,) = json.loads((folder / "cut.json").read_text())["cases"]
    assert (case["num_tokens"], case["mean_nats"]) == (200, 2.0)
