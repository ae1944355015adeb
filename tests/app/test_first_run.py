"""The demo model on the first start: fetched before the page asks for it, and never in its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.first_run import fetch_demo
from backends.errors import ModelFileError
from backends.events import LoadProgress
from models.demo import DEFAULT_DEMO, DEMOS


def test_a_model_that_is_no_demo_or_is_here_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fetch_demo("owner/name", tmp_path)
    demo = DEMOS[DEFAULT_DEMO]
    demo.path(tmp_path).parent.mkdir(parents=True)
    with demo.path(tmp_path).open("wb") as file:
        file.truncate(demo.num_bytes)
    fetch_demo(DEFAULT_DEMO, tmp_path)
    assert capsys.readouterr().err == ""


def test_a_failed_fetch_is_one_sentence_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str, folder: Path, report: object) -> Path:
        assert callable(report)
        report(LoadProgress("Fetching", 1, 2))
        raise ModelFileError("The model cannot be fetched: there is no network.", "Try again later.")

    monkeypatch.setattr("app.first_run.ensure_demo", fail)
    fetch_demo(DEFAULT_DEMO, tmp_path)
    said = " ".join(capsys.readouterr().err.split())
    assert "there is no network. Try again later. The page opens without it." in said
