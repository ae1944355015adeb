"""Going on, editing, variants and notebooks with the real Gemma, through the service, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat_settings import ChatSettings
from app.runs import Run
from app.service import Service
from app.settings import Settings
from backends.requests import LoadRequest, Sampling

pytestmark = pytest.mark.real_model

OPENING = "The lighthouse had been dark for eleven years when the letter arrived. Mara read it twice, and then she"


@pytest.fixture(params=["ring", "llamacpp"])
def service(request: pytest.FixtureRequest, gemma_path: Path, tmp_path: Path) -> Iterator[Service]:
    if request.param == "llamacpp":
        pytest.importorskip("llama_cpp")
    load = LoadRequest(request.param, str(gemma_path), window=512)
    settings = ChatSettings(load, sampling=Sampling(temperature=0.0), max_new_tokens=12, keep_writing=True)
    service = Service.open(Settings(defaults=settings, data_folder=tmp_path))
    yield service
    service.close()


def ended(run: Run) -> Run:
    assert run.wait_until_finished(240), run.view()
    assert run.view().reason == "length", run.view()
    return run


def test_what_is_done_to_replies_is_what_the_model_goes_on_from(service: Service) -> None:
    chat = service.create_chat().id
    ended(service.send(chat, OPENING))
    in_two = ended(service.continue_reply(chat)).text
    first = service.messages(chat)[1]
    assert len(first.token_ids) == 24

    service.apply_settings(replace(service.settings(chat), max_new_tokens=24), chat)
    in_one_go = ended(service.regenerate(chat))
    assert in_one_go.text == in_two
    assert service.editing.variants(chat)[in_one_go.message_id] == [first.id, in_one_go.message_id]

    service.apply_settings(replace(service.settings(chat), max_new_tokens=8), chat)
    edited = service.editing.edit(first.id, first.text + " Suddenly the", first.version)
    run = ended(service.editing.resume(first.id))
    assert run.text.startswith(edited.text)
    assert len(service.message(first.id).token_ids) == len(edited.token_ids) + 8

    service.editing.undo(chat)
    cut = service.editing.cut(in_one_go.message_id, 20)
    assert ended(service.editing.resume(cut)).text.startswith(in_one_go.text[:20])


def test_a_notebook_goes_on_at_the_end_and_at_the_cursor(service: Service) -> None:
    chat = service.create_chat(kind="notebook").id
    typed = service.notebooks.replace(chat, 0, 0, OPENING, service.notebooks.document(chat).version)
    ended(service.notebooks.write(chat, typed.version))
    written = service.notebooks.document(chat)
    assert written.text.startswith(OPENING)
    at = len("The lighthouse had been dark")
    run = ended(service.notebooks.write(chat, written.version, at))
    whole = service.notebooks.document(chat)
    assert whole.text == run.text + written.text[at:]
    assert len(run.text) > at
