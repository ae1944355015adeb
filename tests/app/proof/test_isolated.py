"""A generator in a process of its own: items arrive as made, errors as they were, and nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest

from app.proof.isolated import stream
from backends.errors import BackendUnavailableError, ModelFileError, RingsideError, WorkerDiedError


def count(num_items: int) -> Iterator[int]:
    yield from range(num_items)


def process_ids() -> Iterator[int]:
    while True:
        yield os.getpid()


def fail(kind: str) -> Iterator[int]:
    yield 1
    match kind:
        case "displayable":
            raise ModelFileError("model.gguf ends early.", "Fetch it again.")
        case "value":
            raise ValueError("window of 0 tokens is below 1")
        case "missing":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        case "killed":
            os._exit(9)
        case _:
            raise KeyError("surprise")


def test_items_arrive_in_order_from_another_process() -> None:
    assert list(stream(__name__, "count", 5)) == [0, 1, 2, 3, 4]
    assert next(stream(__name__, "process_ids")) != os.getpid()


def test_closing_early_ends_the_process() -> None:
    items = stream(__name__, "process_ids")
    child = next(items)
    items.close()
    assert not psutil.pid_exists(child)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("displayable", ModelFileError, "model.gguf ends early. Fetch it again."),
        ("value", RingsideError, "window of 0 tokens is below 1."),
        ("missing", BackendUnavailableError, "needs torch.*pip install"),
        ("killed", WorkerDiedError, "exit code 9"),
        ("other", RingsideError, "KeyError: 'surprise'"),
    ],
)
def test_errors_come_back_as_one_sentence_after_what_was_made_before(
    kind: str, error: type[RingsideError], words: str
) -> None:
    items = stream(__name__, "fail", kind)
    assert next(items) == 1
    with pytest.raises(error, match=words):
        next(items)
