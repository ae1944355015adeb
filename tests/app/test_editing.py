"""Editing with a real store and real workers; the echo backend says the last message again, so prompts show."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from app.runs import Run
from app.service import Service
from backends.errors import BadRequestError

EchoService = Callable[..., Service]
PATIENCE_S = 60.0


def ended(run: Run) -> Run:
    assert run.wait_until_finished(PATIENCE_S), run.view()
    return run


def texts(service: Service, chat_id: int) -> list[str]:
    return [message.text for message in service.messages(chat_id)]


@pytest.fixture
def service(echo_service: EchoService) -> Service:
    return echo_service(text="prompt", rate="max")


def test_any_question_can_be_asked_again_and_any_reply_written_anew(service: Service) -> None:
    chat = service.create_chat().id
    for text in ("one", "two", "three"):
        ended(service.send(chat, text))
    second = service.messages(chat)[2]
    ended(service.editing.ask_again(second.id, "2"))
    assert texts(service, chat) == ["one", "one", "2", "2"]
    service.editing.select(second.id)
    assert texts(service, chat) == ["one", "one", "two", "two", "three", "three"]
    first_reply = service.messages(chat)[1]
    run = ended(service.editing.answer_again(first_reply.id))
    assert texts(service, chat) == ["one", "one"]
    assert service.editing.variants(chat)[run.message_id] == [first_reply.id, run.message_id]
    ended(service.send(chat, "elsewhere"))
    for _ in range(2):
        service.editing.undo(chat)
    assert texts(service, chat) == ["one", "one", "two", "two", "three", "three"]


def test_an_edited_reply_is_what_the_model_goes_on_from(echo_service: EchoService) -> None:
    service = echo_service(max_new_tokens=40, rate="max")
    chat = service.create_chat().id
    ended(service.send(chat, "Go on"))
    reply = service.messages(chat)[1]
    edited = service.editing.edit(reply.id, reply.text[:60] + "!!" + reply.text[62:], reply.version)
    assert edited.text == reply.text[:60] + "!!" + reply.text[62:]
    assert len(edited.token_ids) < len(reply.token_ids)
    run = ended(service.continue_reply(chat))
    again = service.messages(chat)[1]
    assert again.text.startswith(edited.text)
    assert again.text == run.text
    assert len(again.token_ids) == len(edited.token_ids) + 40


def test_a_stale_tab_cannot_overwrite_newer_text(service: Service) -> None:
    chat = service.create_chat().id
    ended(service.send(chat, "one two three"))
    asked, reply = service.messages(chat)
    service.editing.edit(asked.id, "newer", asked.version)
    ended(service.continue_reply(chat))
    for message in (asked, reply):
        with pytest.raises(BadRequestError, match="This message was changed elsewhere in the meantime"):
            service.editing.edit(message.id, "stale", message.version)
    assert texts(service, chat)[0] == "newer"


def test_a_reply_can_be_cut_and_gone_on_with_beside_the_whole_one(echo_service: EchoService) -> None:
    service = echo_service(max_new_tokens=60, rate="max")
    chat = service.create_chat().id
    ended(service.send(chat, "Go on"))
    whole = service.messages(chat)[1]
    cut = service.editing.cut(whole.id, 50)
    assert texts(service, chat) == ["Go on", whole.text[:50]]
    assert service.message(cut).seed == whole.seed
    ended(service.editing.resume(cut))
    assert texts(service, chat)[1][:50] == whole.text[:50]
    assert service.message(whole.id).text == whole.text
    with pytest.raises(BadRequestError, match="There is no reply to cut after 0 characters"):
        service.editing.cut(whole.id, 0)


def test_deleted_messages_are_not_in_the_next_prompt_and_undo_brings_them_back(service: Service) -> None:
    chat = service.create_chat().id
    ended(service.send(chat, "one"))
    ended(service.send(chat, "two"))
    service.editing.delete(service.messages(chat)[2].id)
    assert texts(service, chat) == ["one", "one"]
    ended(service.send(chat, "three"))
    assert texts(service, chat) == ["one", "one", "three", "three"]
    assert service.editing.undo(chat) == "delete"
    assert texts(service, chat) == ["one", "one", "two", "two"]


def test_nothing_is_edited_under_a_reply_being_written_but_variants_can_be_looked_at(echo_service: EchoService) -> None:
    service = echo_service(rate="50")
    chat = service.create_chat().id
    run = service.send(chat, "Go on")
    while run.num_tokens < 3:
        time.sleep(0.01)
    service.stop(chat)
    ended(run)
    again = service.regenerate(chat)
    former = run.message_id
    for action in (
        lambda: service.editing.edit(former, "x", 0),
        lambda: service.editing.delete(former),
        lambda: service.editing.cut(former, 1),
        lambda: service.editing.undo(chat),
        lambda: service.editing.branch(former),
        lambda: service.editing.resume(former),
    ):
        with pytest.raises(BadRequestError, match="A reply is being written in this chat"):
            action()
    service.editing.select(former)
    assert texts(service, chat)[1] == run.text
    service.stop(chat)
    ended(again)
    assert service.message(again.message_id).text == again.text


def test_a_reply_in_the_middle_of_a_chat_is_not_gone_on_with(service: Service) -> None:
    chat = service.create_chat().id
    ended(service.send(chat, "one"))
    ended(service.send(chat, "two"))
    with pytest.raises(BadRequestError, match="The chat goes on after this reply"):
        service.editing.resume(service.messages(chat)[1].id)


def test_a_question_cannot_be_edited_to_nothing(service: Service) -> None:
    chat = service.create_chat().id
    ended(service.send(chat, "one"))
    asked, _ = service.messages(chat)
    with pytest.raises(BadRequestError, match="The message is empty"):
        service.editing.edit(asked.id, "  ", asked.version)
    assert texts(service, chat)[0] == "one"
    assert service.editing.num_steps(chat) == 0


def test_every_change_of_what_a_chat_shows_is_counted_for_other_tabs(service: Service) -> None:
    chat = service.create_chat().id
    ended(service.send(chat, "one"))
    asked, reply = service.messages(chat)
    counts = [service.num_changes(chat)]
    for change in (
        lambda: service.editing.edit(reply.id, "o", reply.version),
        lambda: service.editing.cut(reply.id, 1),
        lambda: service.editing.select(reply.id),
        lambda: service.editing.branch(asked.id),
        lambda: ended(service.editing.answer_again(asked.id)),
        lambda: service.editing.delete(asked.id),
        lambda: service.editing.undo(chat),
    ):
        change()
        counts.append(service.num_changes(chat))
    assert counts == sorted(set(counts))


def test_the_beginning_of_a_reply_keeps_the_mark_its_reasoning_opened_with(service: Service) -> None:
    chat = service.create_chat().id
    run = ended(service.send(chat, "one two"))
    service._store.keep_opening(run.message_id, "<think>")
    assert service.opening(service.editing.cut(run.message_id, 3)) == "<think>"
