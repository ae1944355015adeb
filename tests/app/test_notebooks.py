from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from app.following import Follower
from app.runs import Run
from app.service import Service
from app.transcripts import Transcripts
from backends.errors import BadRequestError

EchoService = Callable[..., Service]
AWKWARD = "  def f():\n\treturn 1\r\n\n👩‍👩‍👧 \ufeff é "


def ended(run: Run) -> Run:
    assert run.wait_until_finished(60), run.view()
    return run


def test_what_is_typed_and_written_is_kept_character_by_character(echo_service: EchoService) -> None:
    service = echo_service(max_new_tokens=30, rate="max")
    chat = service.create_chat(kind="notebook").id
    document = service.notebooks.document(chat)
    assert document.text == ""
    document = service.notebooks.replace(chat, 0, 0, AWKWARD, document.version)
    assert document.text == AWKWARD
    run = ended(service.notebooks.write(chat, document.version))
    written = service.notebooks.document(chat)
    assert written.text == run.text
    assert written.text.startswith(AWKWARD)
    assert len(written.token_ids) == 30
    mended = service.notebooks.replace(chat, 2, 5, "class", written.version)
    assert mended.text == AWKWARD[:2] + "class" + written.text[5:]
    assert service.editing.undo(chat) == "edit"
    assert service.notebooks.document(chat).text == written.text


def test_a_notebook_that_nothing_was_typed_into_is_taken_again(echo_service: EchoService) -> None:
    service = echo_service()
    first = service.create_notebook().id
    service.apply_settings(replace(service.settings(), system_prompt="Be brief."))
    assert service.create_notebook().id == first
    assert service.settings(first).system_prompt == "Be brief."
    service.notebooks.replace(first, 0, 0, "x", service.notebooks.document(first).version)
    second = service.create_notebook().id
    assert second != first
    service.pin_chat(second, True)
    third = service.create_notebook().id
    assert third not in (first, second)
    service.rename_chat(third, "Named")
    assert service.create_notebook().id not in (first, second, third)


def test_the_model_writes_at_the_cursor_in_front_of_what_stands_behind_it(echo_service: EchoService) -> None:
    service = echo_service(max_new_tokens=None, rate="100")
    chat = service.create_chat(kind="notebook").id
    version = service.notebooks.document(chat).version
    document = service.notebooks.replace(chat, 0, 0, "The beginning. The end.", version)
    run = service.notebooks.write(chat, document.version, at=15)
    while run.num_tokens < 10:
        time.sleep(0.01)
    live = service.notebooks.document(chat)
    assert live.text.startswith("The beginning. ")
    assert service.notebooks.behind(document.id) == "The end."
    service.stop(chat)
    ended(run)
    whole = service.notebooks.document(chat)
    assert whole.text == run.text + "The end."
    assert service.notebooks.behind(document.id) == ""
    assert service.message(document.id).text == whole.text


def test_a_stale_tab_neither_types_nor_writes(echo_service: EchoService) -> None:
    service = echo_service(max_new_tokens=3, rate="max")
    chat = service.create_chat(kind="notebook").id
    stale = service.notebooks.document(chat).version
    newer = service.notebooks.replace(chat, 0, 0, "newer", stale)
    for action in (
        lambda: service.notebooks.replace(chat, 0, 0, "stale", stale),
        lambda: service.notebooks.write(chat, stale),
        lambda: service.notebooks.replace(chat, 0, 99, "", newer.version),
        lambda: service.notebooks.write(chat, newer.version, at=6),
    ):
        with pytest.raises(BadRequestError, match="changed elsewhere"):
            action()
    assert service.notebooks.document(chat).text == "newer"


def test_a_chat_is_no_notebook(echo_service: EchoService) -> None:
    service = echo_service()
    with pytest.raises(BadRequestError, match="This chat is no notebook"):
        service.notebooks.document(service.create_chat().id)


def test_a_tab_with_a_notebook_is_sent_only_the_characters_it_lacks_as_they_are(echo_service: EchoService) -> None:
    service = echo_service(max_new_tokens=40, rate="max")
    chat = service.create_chat(kind="notebook").id
    document = service.notebooks.document(chat)
    document = service.notebooks.replace(chat, 0, 0, "# One <b>\nand an end", document.version)
    run = service.notebooks.write(chat, document.version, at=10)
    follower = Follower(service, Transcripts(), chat, message_id=run.message_id, num_chars=10)
    events = [event.data for event in follower.poll() if event.name == "run"]
    ended(run)
    events += [event.data for event in follower.poll() if event.name == "run"]
    assert all("text" not in event for event in events)
    written = [event["written"] for event in events if "written" in event]
    assert written[0]["first"] == 10
    whole = "".join(piece["text"] for piece in written)
    assert f"# One <b>\n{whole}and an end" == service.notebooks.document(chat).text
    assert events[-1]["state"]["status"] == "finished"


def test_a_notebook_is_titled_after_its_first_words_and_keeps_a_title_it_was_given(echo_service: EchoService) -> None:
    service = echo_service()
    chat = service.create_chat(kind="notebook").id
    assert service.notebooks.has(chat)
    assert not service.notebooks.has(service.create_chat().id)
    assert not service.notebooks.has(10_000)
    document = service.notebooks.document(chat)
    for text, title in (("One", ""), (" and two\nand more ", "and two"), ("something else", "and two")):
        end = len(document.text)
        document = service.notebooks.replace(chat, end, end, text, document.version)
        assert service.chat(chat).title == title
