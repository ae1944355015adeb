"""Event streams: one loop for all tabs, work done once for tabs that are told the same, and a limit an address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from app import broadcast
from app.broadcast import Broadcast
from app.client_address import client_address
from app.following import Follower
from app.request_limits import RequestRefusedError
from app.shared_news import SharedNews
from app.transcripts import Transcripts
from tests.app.conftest import EchoService
from tests.app.test_server import running


class Counted(Transcripts):
    """Transcripts that count how often a reply is rendered."""

    def __init__(self) -> None:
        super().__init__()
        self.num_slices = 0

    def slice(self, *given: object, **named: object) -> object:  # type: ignore[override]
        self.num_slices += 1
        return super().slice(*given, **named)  # type: ignore[arg-type]


def test_tabs_that_are_as_far_as_each_other_are_worked_for_once(echo_service: EchoService) -> None:
    service = echo_service(rate="200")
    chat, transcripts, news = service.create_chat().id, Counted(), SharedNews()
    run = service.send(chat, "go")
    tabs = [Follower(service, transcripts, chat, news=news) for _ in range(20)]
    num_looks, told = 0, [list[str]() for _ in tabs]
    while run.num_tokens < 100 or num_looks < 3:
        news.next_look()
        num_looks += 1
        for tab, texts in zip(tabs, told, strict=True):
            texts.extend(event.encoded for event in tab.poll() if event.name == "run")
        run.wait_for_change(run.version, 10)
    service.stop(chat)
    assert transcripts.num_slices <= num_looks
    assert all(texts == told[0] for texts in told)


def test_the_first_tab_after_a_while_without_any_is_told_of_now(echo_service: EchoService) -> None:
    service = echo_service(rate="50")
    chat, news = service.create_chat().id, SharedNews()
    streams = Broadcast(news, lambda: False)

    async def first_words() -> str:
        stream = streams.events(Follower(service, Transcripts(), chat, news=news))
        try:
            return await anext(stream)
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    async def come_and_come_again() -> str:
        await first_words()
        run = service.send(chat, "go")
        await asyncio.to_thread(run.wait_for_change, run.version, 10)
        return await first_words()

    assert "event: run\n" in asyncio.run(come_and_come_again())


def test_a_tab_that_comes_late_catches_up_with_the_others(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="50")
    chat, transcripts, news = service.create_chat().id, Transcripts(), SharedNews()
    run = service.send(chat, "go")
    early = Follower(service, transcripts, chat, news=news)
    texts: dict[str, str] = {}
    followers = {"early": early}
    assert run.wait_until_finished(60)
    followers["late"] = Follower(service, transcripts, chat, message_id=run.message_id, news=news)
    for name, follower in followers.items():
        news.next_look()
        for event in follower.poll():
            if event.name == "run" and "text" in event.data:
                texts[name] = "".join(event.data["text"]["blocks"]) + (event.data["text"]["open"] or "")
    assert texts["late"]
    assert texts.get("early", texts["late"]) == texts["late"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans())))
def test_shared_news_are_never_older_than_the_look(asked: list[tuple[str, int, bool]]) -> None:
    news, given_in_look = SharedNews(), dict[str, int]()
    for key, value, begins_look in asked:
        if begins_look:
            news.next_look()
            given_in_look.clear()
        expected = given_in_look.setdefault(key, value)
        assert news.lasting(key, lambda value=value: value) == expected  # type: ignore[misc]


def test_what_is_equal_stays_the_same_object() -> None:
    news = SharedNews()
    first = news.lasting("chats", lambda: [1, 2])
    news.next_look()
    assert news.lasting("chats", lambda: [1, 2]) is first
    news.next_look()
    assert news.lasting("chats", lambda: [1]) == [1]


async def first_of(stream: AsyncIterator[str]) -> str:
    async for text in stream:
        return text
    return ""


def test_all_tabs_share_one_loop_which_ends_with_the_last(echo_service: EchoService) -> None:
    service = echo_service()

    async def open_and_close() -> None:
        streams = Broadcast(SharedNews(), lambda: False)
        before = len(asyncio.all_tasks())
        tabs = [streams.events(Follower(service, Transcripts())) for _ in range(30)]
        for tab in tabs:
            assert "event: status" in await first_of(tab)
        assert len(asyncio.all_tasks()) == before + 1
        for tab in tabs:
            await tab.aclose()  # type: ignore[attr-defined]
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await task

    asyncio.run(open_and_close())


def test_a_tab_that_cannot_be_told_ends_alone(echo_service: EchoService, monkeypatch: pytest.MonkeyPatch) -> None:
    service = echo_service()
    monkeypatch.setattr(broadcast, "IDLE_TICK_S", 0.0)
    broken, whole = Follower(service, Transcripts()), Follower(service, Transcripts())

    async def look() -> None:
        streams = Broadcast(SharedNews(), lambda: False)
        ends, goes_on = streams.events(broken), streams.events(whole)
        assert await first_of(ends)
        assert await first_of(goes_on)
        monkeypatch.setattr(broken, "poll", lambda: 1 / 0)
        assert await first_of(ends) == ""
        service.create_chat("A river")
        assert "event: chats" in await first_of(goes_on)

    asyncio.run(look())


def test_one_address_has_so_many_streams_and_others_have_theirs() -> None:
    streams = Broadcast(SharedNews(), lambda: False)
    for _ in range(broadcast.MAX_STREAMS_PER_ADDRESS):
        streams.enter("10.0.0.1")
    with pytest.raises(RequestRefusedError, match="48 tabs at this address follow Ringside already") as refused:
        streams.enter("10.0.0.1")
    assert refused.value.status == 429
    streams.enter("10.0.0.2")
    streams.leave("10.0.0.1")
    streams.enter("10.0.0.1")


def test_a_tab_too_many_is_told_so_and_let_in_once_another_closes(
    echo_service: EchoService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "MAX_STREAMS_PER_ADDRESS", 1)
    with running(echo_service()) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        with client.stream("GET", "/app/stream") as open_tab:
            assert open_tab.status_code == 200
            refused = client.get("/app/stream")
            assert refused.status_code == 429
            assert refused.json()["message"] == "1 tabs at this address follow Ringside already, and no more can."
        status = 429
        while status == 429:  # until the server has seen the first one go
            with client.stream("GET", "/app/stream") as answer:
                status = answer.status_code
        assert status == 200


@pytest.mark.parametrize(
    ("host", "counted_as"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("unix:", "unix:"),
    ],
)
def test_a_client_is_counted_by_its_address_or_its_network(host: str, counted_as: str) -> None:
    assert client_address(HTTPConnection({"type": "http", "client": (host, 1), "headers": []})) == counted_as
