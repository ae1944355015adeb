"""The experiment's report: measured in its own process, told with its numbers, complete even when stopped early."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer import Typer
from typer.testing import CliRunner

from app.proof import experiment
from app.proof.commands import register
from backends.errors import RingsideError
from models.step_cost import STRATEGIES, StepCost


@pytest.fixture(scope="module")
def costs() -> list[StepCost]:
    return list(experiment.measure((128,), longest=512))


def test_the_sentences_name_the_ring_s_flat_bytes_while_the_growing_one_grows(costs: list[StepCost]) -> None:
    sentences = experiment.conclusions(costs)
    ring = next(sentence for sentence in sentences if sentence.startswith("Ring"))
    assert "it holds 256 KiB to 256 KiB" in ring
    assert "adding a token allocates 0 B" in ring
    growing = [cost.held_bytes for cost in costs if cost.strategy == "concatenate"]
    assert growing == sorted(set(growing))


def test_every_point_is_in_the_table_and_in_the_results(costs: list[StepCost]) -> None:
    report = experiment.report(costs)
    assert len(report.tables[-1].rows) == len(report.results["costs"]) == len(costs)
    assert all(len(figure.data) == len(STRATEGIES) for figure in report.figures)


def test_a_run_stopped_at_once_or_midway_still_gives_a_report(costs: list[StepCost]) -> None:
    assert experiment.report([]).sentences == ["Nothing was measured."]
    assert experiment.report(costs[:3]).figures


def test_a_window_above_the_text_is_refused_in_one_sentence() -> None:
    with pytest.raises(RingsideError, match="window of 600 tokens is outside 1 to 512"):
        list(experiment.measure((600,), longest=512))


def test_the_command_prints_one_json_object_a_line() -> None:
    cli = Typer()
    register(cli)
    cli.command("other")(lambda: None)  # a second command, so that Typer keeps the names
    result = CliRunner().invoke(cli, ["experiment", "--json", "-w", "128", "--longest", "256"])
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert len(lines) == len(STRATEGIES) * 3
    assert all(text.startswith('{"strategy": ') for text in lines)


def test_the_app_s_side_of_the_experiment_imports_no_torch() -> None:
    code = "import sys; import app.proof.experiment, app.proof.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
