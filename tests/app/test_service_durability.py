"""A reply outlives the application: killed, closed, or on a disk that is full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from backends.errors import BadRequestError
from tests.app.conftest import EchoService
from tests.app.test_service import ended, last, wait_until

_APP = """
import json, sys
from pathlib import Path
from app.chat_settings import ChatSettings
from app.service import Service
from app.settings import Settings
from backends.requests import LoadRequest
if __name__ == "__main__":
    load = LoadRequest("echo", "", options={"rate": "200"})
    service = Service.open(Settings(defaults=ChatSettings(load), data_folder=Path(sys.argv[1])))
    run = service.send(service.create_chat().id, "Go on")
    while True:
        version = run.wait_for_change(run.version)
        print(json.dumps(run.text), flush=True)
"""


def test_kill_9_of_the_application_loses_at_most_the_last_second_and_continue_works(
    echo_service: EchoService, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    script = tmp_path / "app_to_kill.py"
    script.write_text(_APP)
    process = subprocess.Popen([sys.executable, script, tmp_path], stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout is not None
    shown: list[tuple[float, str]] = []
    while not shown or len(shown[-1][1]) < 1500:
        text = json.loads(process.stdout.readline())
        shown.append((time.monotonic(), text))
    process.send_signal(signal.SIGKILL)
    killed_s = time.monotonic()
    process.wait()
    service = echo_service(rate="max")
    assert service.notices() == ["A reply was cut when Ringside last ended. Continue goes on from the last word."]
    (chat,) = service.chats()
    reply = last(service, chat.id)
    assert reply.status == "cut"
    older = max((text for shown_s, text in shown if shown_s < killed_s - 1.5), key=len, default="")
    assert reply.text.startswith(older)
    assert reply.seed is not None
    service.apply_settings(replace(service.settings(chat.id), max_new_tokens=30), chat.id)
    more = ended(service.continue_reply(chat.id))
    assert more.text.startswith(reply.text)
    assert more.num_tokens == len(reply.token_ids) + 30
    assert last(service, chat.id).status == "complete"


def test_closing_in_mid_reply_keeps_all_of_it(echo_service: EchoService) -> None:
    service = echo_service(rate="200")
    chat = service.create_chat()
    run = service.send(chat.id, "Go on")
    wait_until(lambda: run.num_tokens > 20)
    service.close()
    service.close()
    again = echo_service()
    reply = last(again, chat.id)
    assert (reply.text, reply.status) == (run.text, "cancelled")
    assert again.notices() == []


def test_a_reply_that_ended_on_a_full_disk_is_shown_whole_and_gone_on_with_only_once_it_is_kept(
    echo_service: EchoService,
) -> None:
    service = echo_service(rate="200")
    chat = service.create_chat()
    run = service.send(chat.id, "Go on")
    wait_until(lambda: run.num_tokens > 20)
    database = service._store.database
    database.write("PRAGMA max_page_count = 1")
    database.read("PRAGMA wal_checkpoint")
    wait_until(lambda: "cannot be kept" in run.view().notice or run.num_tokens > 5_000)
    service.stop(chat.id)
    ended(run)
    reply = last(service, chat.id)
    assert (reply.text, reply.status, len(reply.token_ids)) == (run.text, "cancelled", run.num_tokens)
    with pytest.raises(BadRequestError, match="The end of a reply could not be kept yet"):
        service.continue_reply(chat.id)
    database.write("PRAGMA max_page_count = 1000000")
    more = service.continue_reply(chat.id)
    assert more.text_from(0).startswith(run.text)
    service.stop(chat.id)
    assert ended(more).text == last(service, chat.id).text
