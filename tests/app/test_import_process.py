"""Uploads read in a process of their own: the same chats, the same sentences, and an end where the process dies."""

from __future__ import annotations

import json
import multiprocessing
import threading
from pathlib import Path

import pytest

from app import import_process
from app.import_process import read_upload, read_upload_apart
from backends.errors import BadRequestError


@pytest.fixture
def every_size_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_process, "LARGE_BYTES", 0)


def upload(folder: Path, content: object) -> Path:
    path = folder / "upload.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def chats(num_chats: int) -> str:
    messages = [{"role": "user", "text": "word " * 100}, {"role": "assistant", "text": "x", "token_ids": [1, 2]}]
    rows = [{"title": f"chat {number}", "messages": messages} for number in range(num_chats)]
    return json.dumps({"format": "ringside-chats", "version": 1, "chats": rows})


@pytest.mark.usefixtures("every_size_is_large")
def test_another_process_reads_the_same_chats(tmp_path: Path) -> None:
    path = upload(tmp_path, {"name": "x.json", "content": chats(50)})
    assert read_upload_apart(path) == read_upload(path)


@pytest.mark.usefixtures("every_size_is_large")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"name": "x.json", "content": '{"x": 1}'}, "x.json is not a file of chats that Ringside knows."),
        ({"name": "x.json", "content": "[" * 10_000}, "x.json is not complete JSON"),
        ({"name": "x.json"}, "A file to import has a name and a content, both of them text."),
        ("[" * 10_000, "The file did not arrive as it was sent."),
        ("", "The file did not arrive as it was sent."),
    ],
)
def test_another_process_says_the_same_sentences(tmp_path: Path, content: object, message: str) -> None:
    path = upload(tmp_path, content)
    for read in (read_upload, read_upload_apart):
        with pytest.raises(BadRequestError, match=message[:40]):
            read(path)


def test_small_files_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: pytest.fail("started one"))
    assert len(read_upload_apart(upload(tmp_path, {"name": "a.txt", "content": "Once"}))) == 1


@pytest.mark.usefixtures("every_size_is_large")
def test_a_process_that_dies_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_process, "_send_chats", threading.Thread)  # ends at once and sends nothing
    with pytest.raises(BadRequestError, match="The memory that is free is too little"):
        read_upload_apart(upload(tmp_path, {"name": "x.json", "content": chats(2)}))
