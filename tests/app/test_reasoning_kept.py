"""A reasoning model from worker to page: the echo backend plays one whose template opens the reasoning."""

from __future__ import annotations

import json

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
        assert '<div class="thinking"><p>Hmm, what.</p>' in shown["blocks"][0]
        assert shown["open"].startswith('<div class="thinking-end">2 words of reasoning</div><p>The <em>answer</em>.')
        assert page.get(f"/app/messages/{run.message_id}/text").text == message.text
        exported = page.get(f"/app/chats/{chat.id}/export.html").text
        assert '<div class="thinking"><p>Hmm, what.</p>' in exported
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
        assert '<div class="thinking"><p>r</p>' in shown["blocks"][0]
        assert shown["open"].endswith("<p>a</p>\n")
