"""The exact prompt of a reply: as fed, kept within a budget, gone with its chat."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.chat_settings import ChatSettings
from app.fed_prompts import FedPrompt, FedPrompts
from app.server import build_routes
from app.service import Service
from app.settings import Settings
from backends.echo_text import piece_id, pieces_of
from backends.errors import BadRequestError
from backends.requests import LoadRequest
from tests.app.conftest import EchoService

PROMPT = FedPrompt((2, 7, 7, 300), {2: b"<bos>", 7: b" caf", 300: b"\xc3"})


def test_pieces_of_half_a_character_are_spelled_and_the_text_is_their_bytes_together() -> None:
    assert [PROMPT.piece(token_id) for token_id in PROMPT.token_ids] == ["<bos>", " caf", " caf", "\\xc3"]
    assert FedPrompt((7, 300, 301), {7: b" caf", 300: b"\xc3", 301: b"\xa9"}).text == " café"
    assert FedPrompt.unpack(PROMPT.pack()) == PROMPT
    with pytest.raises(ValueError, match="no prompt"):
        FedPrompt.unpack(b"damaged")


def test_the_oldest_prompts_go_first_and_a_chats_go_with_it(tmp_path: Path) -> None:
    prompts = FedPrompts(tmp_path / "prompts", budget_bytes=2 * len(PROMPT.pack()))
    assert prompts.prompt(1, 1) is None
    for message_id in (1, 2, 3):
        prompts.keep(message_id % 2, message_id, PROMPT)
        os.utime(tmp_path / "prompts" / f"chat-{message_id % 2}" / f"{message_id}.prompt", (message_id, message_id))
    prompts.keep(1, 4, PROMPT)
    assert [prompts.prompt(each % 2, each) is not None for each in (1, 2, 3)] == [False, False, True]
    assert prompts.prompt(1, 4) == PROMPT
    prompts.forget(1)
    assert prompts.prompt(1, 4) is None
    prompts.keep(0, 2, PROMPT)
    prompts.keep_only([5])
    assert prompts.prompt(0, 2) is None


def test_the_prompt_of_a_reply_is_paged_and_copied_as_text_and_as_ids(echo_service: EchoService) -> None:
    service = echo_service(max_new_tokens=3, rate="max")
    chat = service.create_chat().id
    run = service.send(chat, "Once upon a time")
    assert run.wait_until_finished(60)
    pieces = pieces_of("Once upon a time")
    with TestClient(build_routes(service), base_url="http://127.0.0.1:7878") as page:
        url = f"/app/messages/{run.message_id}/prompt"
        shown = page.get(url, params={"first": 1, "count": 2}).json()
        assert shown == {"num_tokens": 4, "first": 1, "tokens": [[piece_id(each), each] for each in pieces[1:3]]}
        assert page.get(f"{url}/text").text == "Once upon a time"
        assert page.get(f"{url}/ids").text == ", ".join(str(piece_id(each)) for each in pieces)
    service.delete_chat(chat)
    with pytest.raises(BadRequestError, match="not kept"):
        service.prompt(run.message_id)


@pytest.mark.real_model
@pytest.mark.parametrize("backend", ["ring", "llamacpp"])
def test_the_ids_are_those_the_real_model_was_fed_from_its_first_token_on(
    gemma_path: Path, tmp_path: Path, backend: str
) -> None:
    settings = ChatSettings(LoadRequest(backend, str(gemma_path), window=256), max_new_tokens=2)
    service = Service.open(Settings(defaults=settings, data_folder=tmp_path))
    try:
        run = service.send(service.create_chat().id, "The capital of France is")
        assert run.wait_until_finished(180), run.view()
        prompt = service.prompt(run.message_id)
        assert prompt.token_ids == (2, 818, 5279, 529, 7001, 563)
        assert prompt.text == "<bos>The capital of France is"
        assert run.metrics().summary.prompt_tokens == len(prompt.token_ids)
    finally:
        service.close()
