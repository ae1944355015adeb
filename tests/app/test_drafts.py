"""Drafts of one prompt, from the queue to the store: written together where the backend can, else one after another."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.engine import Engine
from app.jobs import Draft, Job, NothingKept
from app.runs import Run
from backends.requests import GenerationRequest, LoadRequest, Message, Sampling
from tests.app.test_engine import ended, load_request, wait_until, worker_pid
from tests.backends.tiny_gguf import write_tiny_gguf

REQUEST = GenerationRequest((Message("user", "Go on"),), Sampling(temperature=1.0), max_new_tokens=40, ignore_end=True)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path / "worker.log")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LoadRequest:
    path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", sliding_window=8, sliding_pattern=2)
    return LoadRequest("ring", str(path), window=8, device="cpu", precision="float32", num_threads=1)


def drafts(engine: Engine, load: LoadRequest, num: int = 3, max_new_tokens: int | None = 40) -> list[Run]:
    jobs = []
    for seed in range(num):
        request = replace(REQUEST, sampling=replace(REQUEST.sampling, seed=seed), max_new_tokens=max_new_tokens)
        jobs.append(Job(Run(1, seed), load, lambda request=request: request, NothingKept(), draft=Draft("a", seed)))  # type: ignore[misc]
    engine.submit(*jobs)
    return [job.run for job in jobs]


def alone(engine: Engine, load: LoadRequest, seed: int) -> Run:
    request = replace(REQUEST, sampling=replace(REQUEST.sampling, seed=seed))
    run = Run(1, 9)
    engine.submit(Job(run, load, lambda: request, NothingKept()))
    return ended(run)


def test_drafts_are_written_together_and_each_is_what_it_would_be_alone(engine: Engine, tiny: LoadRequest) -> None:
    runs = drafts(engine, tiny)
    assert engine.runs() == runs
    for seed, run in enumerate(runs):
        view = ended(run).view()
        assert (view.reason, view.num_tokens, view.summary.num_rows) == ("length", 40, 3)
        assert run.ending is not None
        assert run.ending.seed == seed
        assert run.text == alone(engine, tiny, seed).text
    assert len({run.text for run in runs}) == 3


def test_of_drafts_written_together_one_or_all_can_be_stopped(engine: Engine, tiny: LoadRequest) -> None:
    runs = drafts(engine, tiny, max_new_tokens=None)
    wait_until(lambda: all(run.num_tokens > 5 for run in runs))
    engine.cancel(runs[1])
    assert ended(runs[1]).view().reason == "cancelled"
    so_far = runs[0].num_tokens
    wait_until(lambda: runs[0].num_tokens > so_far)
    assert engine.runs() == [runs[0], runs[2]]
    for run in runs:
        engine.cancel(run)
    assert {ended(run).view().reason for run in runs} == {"cancelled"}
    assert all(run.text for run in runs)
    assert ended(drafts(engine, tiny, num=1)[0]).view().reason == "length"


def test_drafts_a_backend_cannot_write_together_wait_in_a_row_and_come_one_after_another(engine: Engine) -> None:
    slow = load_request(rate="200")
    runs = drafts(engine, slow, max_new_tokens=60)
    wait_until(lambda: runs[0].num_tokens > 0)
    assert [run.view().queue_position for run in runs] == [None, 1, 2]
    assert [ended(run).view().summary.num_rows for run in runs] == [1, 1, 1]
    assert [run.num_tokens for run in runs] == [60, 60, 60]


def test_a_process_that_dies_ends_all_drafts_with_what_they_have(engine: Engine, tiny: LoadRequest) -> None:
    runs = drafts(engine, tiny, max_new_tokens=None)
    wait_until(lambda: all(run.num_tokens > 5 for run in runs))
    os.kill(worker_pid(engine), signal.SIGKILL)
    for run in runs:
        assert "SIGKILL" in ended(run).view().error
        assert run.text


def test_a_model_that_cannot_be_loaded_ends_all_drafts_at_once(engine: Engine) -> None:
    runs = drafts(engine, load_request(load_error="cut short."))
    assert {ended(run).view().error for run in runs} == {"cut short."}
