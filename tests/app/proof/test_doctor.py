"""The doctor on a whole model: a tiny one with random weights, in both backends, through the real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.proof.scoring import Losses, score
from app.proof.verdicts import ORDERS, Symptom
from backends.requests import LoadRequest
from tests.backends.tiny_gguf import write_tiny_gguf

WINDOW = 32


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("doctor") / "tiny.gguf"
    return write_tiny_gguf(path, sliding_window=WINDOW, sliding_pattern=2, num_layers=4)


def doctor(path: Path, *options: str) -> list[dict[str, object]]:
    arguments = ["doctor", str(path), "-w", str(WINDOW), "--threads", "1", "--json", *options]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_ring_backend_is_found_exact_and_bounded_on_a_real_file(tiny_gguf: Path) -> None:
    verdicts = doctor(tiny_gguf, "-n", "0", "--reference-tokens", "0")
    by_check = {verdict["check"]: verdict for verdict in verdicts}
    assert [verdict["check"] for verdict in verdicts] == list(ORDERS[None])
    assert by_check["slides"]["status"] == by_check["bounded"]["status"] == by_check["exact"]["status"] == "good"
    assert by_check["flat"]["status"] == by_check["sound"]["status"] == "unsure"  # nothing was run


def test_a_symptom_starts_the_walk_where_it_shows(tiny_gguf: Path) -> None:
    verdicts = doctor(tiny_gguf, "--symptom", "no-faster", "-n", "60", "--reference-tokens", "0")
    assert [verdict["check"] for verdict in verdicts] == list(ORDERS[Symptom.NO_FASTER])
    told = " ".join(verdicts[0]["evidence"])  # type: ignore[arg-type]
    assert "Of a token's time:" in told
    assert "detokenising" in told
    assert "Making HTML of it" in told
    assert "GB/s" in told


def test_llamacpp_is_probed_from_outside(tiny_gguf: Path) -> None:
    pytest.importorskip("llama_cpp")
    verdicts = doctor(tiny_gguf, "--backend", "llamacpp", "-n", "60", "--reference-tokens", "400")
    by_check = {str(verdict["check"]): verdict for verdict in verdicts}
    assert by_check["bounded"]["status"] == by_check["exact"]["status"] == "good"
    told = " ".join(by_check["exact"]["evidence"])  # type: ignore[arg-type]
    assert "chunks and single steps" in told
    assert "left at moved positions" in told
    assert "Of shared beginnings 236 of 236" in told
    assert "Against a cache that keeps everything" in " ".join(by_check["sound"]["evidence"])  # type: ignore[arg-type]


def test_a_model_that_runs_through_transformers_is_probed_from_outside(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.stock_folders import save_stock_folder, stock_model

    folder = save_stock_folder(stock_model("phimoe"), tmp_path / "phimoe")
    verdicts = doctor(folder, "-w", "8", "-n", "0", "--reference-tokens", "0")
    by_check = {str(verdict["check"]): verdict for verdict in verdicts}
    assert by_check["slides"]["status"] == "unsure"  # nothing was run that could tell
    assert by_check["bounded"]["status"] == by_check["exact"]["status"] == "good"
    told = " ".join(by_check["exact"]["evidence"])  # type: ignore[arg-type]
    assert "beyond the 29 that all layers reach together" in told
    assert "of the model run without a cache" in told


def test_a_model_that_is_not_there_is_one_sentence_and_exit_code_1() -> None:
    result = CliRunner().invoke(cli, ["doctor", "/nowhere.gguf", "--json"])
    assert result.exit_code == 1
    assert "nowhere.gguf" in json.loads(result.stdout.splitlines()[-1])["error"]


def test_both_backends_lose_the_same_on_a_text_within_the_window(tiny_gguf: Path) -> None:
    pytest.importorskip("llama_cpp")
    found = {}
    for backend in ("ring", "llamacpp"):
        losses = found[backend] = Losses()
        load = LoadRequest(backend, str(tiny_gguf), window=WINDOW, num_threads=1)
        for _ in score(load, "It was late in the year.", 20, losses):
            pass
    assert len(found["ring"].values) == len(found["llamacpp"].values) == 20
    assert found["ring"].values == pytest.approx(found["llamacpp"].values, abs=0.05)


def test_losses_by_depth_leave_out_a_rest() -> None:
    losses = Losses([1.0, 2.0, 3.0, 4.0, 9.0])
    assert losses.by_depth(2) == [(2, 1.5), (4, 3.5)]
    assert losses.mean == pytest.approx(3.8)
    assert Losses().mean is None
