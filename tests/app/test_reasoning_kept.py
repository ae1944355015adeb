"""A reasoning model from worker to page: the echo backend plays one whose template opens the reasoning."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from app.server import build_routes
from tests.app.conftest import EchoService

SCRIPT = json.dumps(["Hmm", ", what", ".\n</th", "ink>\n\n", "The *answer*", "."])


def test_reasoning_opened_by_the_template_is_folded_exported_and_known_after_a_restart(
    echo_service: EchoService,
) -> None:
    service = echo_service(rate="max", text="script", script=SCRIPT, end_after="6", reasoning_opening="<think>")
    chat = service.create_chat()
    run = service.send(chat.id, "ask")
    assert run.wait_until_finished(60)
    message = service.message(run.message_id)
    assert message.text == "Hmm, what.\n</think>\n\nThe *answer*."
    assert message.opening == "<think>"
    service.close()
    again = echo_service()
    with TestClient(build_routes(again), base_url="http://127.0.0.1:7878") as page:
        shown = page.get(f"/app/messages/{run.message_id}/blocks").json()
        assert '<div class="thinking"><p dir="auto">Hmm, what.</p>' in shown["blocks"][0]
        assert shown["open"].startswith(
            '<div class="thinking-end">2 words of reasoning</div><p dir="auto">The <em>answer</em>.'
        )
        assert page.get(f"/app/messages/{run.message_id}/text").text == message.text
        exported = page.get(f"/app/chats/{chat.id}/export.html").text
        assert '<div class="thinking"><p dir="auto">Hmm, what.</p>' in exported
        file = page.get(f"/app/chats/{chat.id}/export.json").text
        (added,) = page.post("/app/import", json={"name": "x.json", "content": file}).json()["chats"]
        assert again.messages(added["id"])[1].opening == "<think>"


def test_a_model_that_opens_by_itself_needs_no_telling(echo_service: EchoService) -> None:
    service = echo_service(
        rate="max", text="script", script=json.dumps(["<think>", "r", "</think>", "a"]), end_after="4"
    )
    run = service.send(service.create_chat().id, "ask")
    assert run.wait_until_finished(60)
    with TestClient(build_routes(service), base_url="http://127.0.0.1:7878") as page:
        shown = page.get(f"/app/messages/{run.message_id}/blocks").json()
        assert '<div class="thinking"><p dir="auto">r</p>' in shown["blocks"][0]
        assert shown["open"].endswith('<p dir="auto">a</p>\n')


@pytest.mark.parametrize("marks", [("<think>", "</think>"), ("<|channel>thought", "<channel|>")])
def test_reasoning_that_nothing_opened_is_folded_once_it_closes_and_from_then_on(
    echo_service: EchoService, marks: tuple[str, str]
) -> None:
    opening, closing = marks
    script = json.dumps(["Hmm", ", what", f".\n{closing[:3]}", f"{closing[3:]}\n\n", "The *answer*", "."])
    service = echo_service(rate="max", text="script", script=script, end_after="6")
    chat = service.create_chat()
    changes = service.num_changes(chat.id)
    run = service.send(chat.id, "ask")
    assert run.wait_until_finished(60)
    assert service.message(run.message_id).opening == opening
    assert service.num_edits(run.message_id) == 1
    assert service.num_changes(chat.id) > changes + 1, "tabs are told to load the reply again"
    service.close()
    with TestClient(build_routes(echo_service()), base_url="http://127.0.0.1:7878") as page:
        shown = page.get(f"/app/messages/{run.message_id}/blocks").json()
        assert '<div class="thinking"><p dir="auto">Hmm, what.</p>' in shown["blocks"][0]
        assert shown["open"].startswith(
            '<div class="thinking-end">2 words of reasoning</div><p dir="auto">The <em>answer</em>.'
        )


def test_a_reply_kept_before_its_lone_mark_was_known_is_folded_on_the_page_and_in_a_file(
    echo_service: EchoService,
) -> None:
    service = echo_service(rate="max", text="script", script=json.dumps(["a"]), end_after="1")
    chat = service.create_chat()
    run = service.send(chat.id, "ask")
    assert run.wait_until_finished(60)
    service.editing.edit(run.message_id, "r\n</think>\n\na", service.message(run.message_id).version)
    with TestClient(build_routes(service), base_url="http://127.0.0.1:7878") as page:
        assert (
            '<div class="thinking"><p dir="auto">r</p>'
            in page.get(f"/app/messages/{run.message_id}/blocks").json()["blocks"][0]
        )
        assert '<div class="thinking"><p dir="auto">r</p>' in page.get(f"/app/chats/{chat.id}/export.html").text


def test_an_empty_pair_shows_nothing(echo_service: EchoService) -> None:
    script = json.dumps(["<|channel>", "thought\n", "<channel|>", "a"])
    service = echo_service(rate="max", text="script", script=script, end_after="4")
    run = service.send(service.create_chat().id, "ask")
    assert run.wait_until_finished(60)
    with TestClient(build_routes(service), base_url="http://127.0.0.1:7878") as page:
        shown = page.get(f"/app/messages/{run.message_id}/blocks").json()
        assert (shown["blocks"], shown["open"]) == ([], '<p dir="auto">a</p>\n')
