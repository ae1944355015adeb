"""Several variants of one reply, from the service to the store: all kept, one on screen, one picked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.chat_settings import ChatSettings
from app.server import build_routes
from app.service import Service
from app.settings import Settings
from app.store import Store
from backends.errors import BadRequestError
from backends.requests import LoadRequest, Sampling
from tests.app.conftest import EchoService
from tests.app.test_engine import ended, wait_until
from tests.backends.tiny_gguf import write_tiny_gguf


@pytest.fixture
def ring_service(tmp_path: Path) -> Iterator[Service]:
    """A service whose chats use a tiny model that writes without end."""
    path = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_window=8, sliding_pattern=2)
    load = LoadRequest("ring", str(path), window=8, device="cpu", precision="float32", num_threads=1)
    settings = ChatSettings(load, sampling=Sampling(temperature=1.0), keep_writing=True)
    service = Service.open(Settings(defaults=settings, data_folder=tmp_path))
    yield service
    service.close()


def test_variants_stand_beside_each_other_and_the_one_picked_is_gone_on_from(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="20")
    chat = service.create_chat().id
    first = service.send(chat, "Of rivers", num_variants=3)
    drafts = service.drafts(chat)
    assert drafts[0] == first.message_id
    for run in service.active_runs(chat):
        ended(run)
    asked, shown = service.messages(chat)
    assert shown.id == drafts[0], "the first is on screen until one is picked"
    assert service.editing.variants(chat)[shown.id] == list(drafts)
    kept = [service.message(each) for each in drafts]
    assert [(each.status, each.parent_id) for each in kept] == [("complete", asked.id)] * 3
    assert len({each.seed for each in kept}) == len({each.text for each in kept}) == 3
    service.editing.select(drafts[2])
    assert service.drafts(chat) == ()
    ended(service.send(chat, "And lakes"))
    assert [each.id for each in service.messages(chat)][:2] == [asked.id, drafts[2]]


def test_regenerating_with_variants_leaves_the_former_reply_beside_them(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="20")
    chat = service.create_chat().id
    former = ended(service.send(chat, "Of rivers")).message_id
    ended(service.regenerate(chat, num_variants=2))
    drafts = service.drafts(chat)
    assert service.editing.variants(chat)[drafts[0]] == [former, *drafts]
    for run in service.active_runs(chat):
        ended(run)  # a stop asks for it and does not wait
    service.editing.undo(chat)
    assert service.messages(chat)[-1].id == former
    assert service.drafts(chat) == ()


def test_variants_of_a_given_seed_take_it_and_those_behind(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="5")
    chat = service.create_chat().id
    settings = service.settings(chat)
    service.apply_settings(replace(settings, sampling=replace(settings.sampling, seed=2**64 - 1)), chat)
    service.send(chat, "Of rivers", num_variants=2)
    for run in service.active_runs(chat):
        ended(run)
    assert [service.message(each).seed for each in service.drafts(chat)] == [2**64 - 1, 0]


@pytest.mark.parametrize(
    ("num_variants", "temperature", "words"),
    [(0, 1.0, "0 variants"), (9, 1.0, "9 variants"), (2, 0.0, "At temperature 0 all variants would be the same")],
)
def test_variants_that_cannot_be_are_refused_before_anything_is_kept(
    echo_service: EchoService, num_variants: int, temperature: float, words: str
) -> None:
    service = echo_service(rate="max", end_after="5")
    chat = service.create_chat().id
    settings = service.settings(chat)
    service.apply_settings(replace(settings, sampling=replace(settings.sampling, temperature=temperature)), chat)
    with pytest.raises(BadRequestError, match=words):
        service.send(chat, "Of rivers", num_variants)
    assert service.messages(chat) == []


def test_by_route_all_are_begun_listed_and_stopped(ring_service: Service) -> None:
    with TestClient(build_routes(ring_service), base_url="http://127.0.0.1:7878") as page:
        chat = page.post("/app/chats").json()["id"]
        started = page.post(f"/app/chats/{chat}/send", json={"text": "Of rivers", "variants": 3}).json()
        shown = page.get(f"/app/chats/{chat}").json()
        assert shown["drafts"][0] == started["message"]
        assert sorted(shown["writing"]) == shown["drafts"]
        runs = ring_service.active_runs(chat)
        wait_until(lambda: all(run.num_tokens for run in runs))
        page.post(f"/app/chats/{chat}/stop")
        assert {ended(run).view().reason for run in runs} == {"cancelled"}
        assert page.get(f"/app/chats/{chat}").json()["drafts"] == shown["drafts"], "still to be picked from"
        page.post(f"/app/messages/{shown['drafts'][1]}/select")
        assert page.get(f"/app/chats/{chat}").json()["drafts"] == []


def test_after_a_crash_every_variant_has_the_text_it_had(ring_service: Service, tmp_path: Path) -> None:
    chat = ring_service.create_chat().id
    ring_service.send(chat, "Of rivers", num_variants=3)
    drafts, path = ring_service.drafts(chat), ring_service.application.database_path
    with closing(Store(path)) as elsewhere:
        wait_until(lambda: all(each is not None and each.text for each in map(elsewhere.message, drafts)))
    copy = tmp_path / "as a crash leaves it.db"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    with closing(Store(copy)) as after:
        assert after.mark_running_as_cut() == 3
        for message_id in drafts:
            message = after.message(message_id)
            assert message is not None
            assert message.status == "cut"
            assert message.text
