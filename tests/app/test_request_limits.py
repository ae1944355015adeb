"""Limits on requests before they are parsed: bytes, time, nesting, and that half a request does nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from app import request_limits
from app.input_rules import MAX_TITLE_CHARS
from app.request_limits import FILE, SMALL, TEXT, BodyLimit, RequestLimits, body_limit, is_deeper_than
from app.server import build_routes
from app.service import Service
from tests.app.conftest import EchoService

LOCAL = "http://127.0.0.1:7878"
JSON = {"content-type": "application/json"}


@pytest.fixture
def service(echo_service: EchoService) -> Service:
    return echo_service(rate="max", max_new_tokens=3)


@pytest.fixture
def page(service: Service) -> Iterator[TestClient]:
    with TestClient(build_routes(service), base_url=LOCAL) as client:
        yield client


class Client:
    """One request as a server passes it on, piece by piece; then the client is silent, or gone."""

    def __init__(self, path: str, parts: list[bytes], *, declared: int | None = None, ends: str = "whole") -> None:
        size = [] if declared is None else [(b"content-length", str(declared).encode())]
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": size or [(b"transfer-encoding", b"chunked")],
        }
        self.num_read = 0
        self.sent: list[Message] = []
        self._parts = parts
        self._ends = ends

    async def receive(self) -> Message:
        if self.num_read < len(self._parts):
            self.num_read += 1
            more = self._ends != "whole" or self.num_read < len(self._parts)
            return {"type": "http.request", "body": self._parts[self.num_read - 1], "more_body": more}
        if self._ends == "silent":
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def said(self) -> str:
        return str(json.loads(self.sent[1]["body"])["message"])


class Heard:
    """An application that notes the bodies it is called with."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)


def ask(client: Client) -> Heard:
    heard = Heard()
    asyncio.run(RequestLimits(heard)(client.scope, client.receive, client.send))
    return heard


def test_a_whole_body_goes_on_as_it_was_sent() -> None:
    assert ask(Client("/app/x", [b'{"a"', b": 1", b"}"])).bodies == [b'{"a": 1}']


@pytest.mark.parametrize(
    ("path", "limit"), [("/app/chats/1/send", TEXT), ("/app/chats/1", SMALL), ("/app/import", FILE), ("/x", SMALL)]
)
def test_a_body_that_says_it_is_too_large_is_refused(path: str, limit: BodyLimit) -> None:
    assert body_limit(path) is limit
    client = Client(path, [b"x"], declared=limit.max_bytes + 1)
    assert ask(client).bodies == []
    assert client.status == 413
    assert client.said.startswith("The request is larger than the ")


@pytest.mark.parametrize("ends", ["whole", "gone"])
def test_a_body_that_turns_out_too_large_is_heard_out_and_refused(ends: str) -> None:
    client = Client("/app/chats/1", [b"x" * 400_000] * 1_000, ends=ends)
    assert ask(client).bodies == []
    assert (client.status, client.num_read) == (413, 1_000)


def test_nobody_is_heard_out_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "_HEARD_OUT_S", 0.01)
    client = Client("/app/chats/1", [b"x"], declared=SMALL.max_bytes + 1, ends="silent")
    ask(client)
    assert client.status == 413


def test_a_file_that_turns_out_too_large_is_refused_by_its_route(
    page: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = BodyLimit(100_000, 10, is_passed_on=True)
    monkeypatch.setattr(request_limits, "body_limit", lambda path: small)
    content = json.dumps({"name": "x.txt", "content": "word " * 50_000}).encode()
    answer = page.post("/app/import", content=iter([content[:90_000], content[90_000:]]), headers=JSON)
    assert answer.status_code == 413
    assert service.chats() == []
    assert list(service.application.data_folder.glob(".import-*")) == []


@pytest.mark.parametrize("parts", [[], [b'{"title"']])
@pytest.mark.parametrize("path", ["/app/chats", "/app/import"])
def test_half_a_request_does_nothing(service: Service, path: str, parts: list[bytes]) -> None:
    client = Client(path, parts, declared=100, ends="gone")
    client.scope["headers"] += [(b"host", b"127.0.0.1:7878"), (b"content-type", b"application/json")]
    asyncio.run(build_routes(service)(client.scope, client.receive, client.send))
    assert service.chats() == []


def test_a_request_that_never_gets_on_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "SMALL", BodyLimit(100, max_s=0.01))
    client = Client("/app/chats", [b"{"], declared=50, ends="silent")
    assert ask(client).bodies == []
    assert client.status == 408
    assert "did not arrive within" in client.said


def test_many_large_bodies_at_once_are_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "MAX_HELD_BYTES", 1_000)
    client = Client("/app/chats", [b"x" * 600, b"x" * 600])
    assert ask(client).bodies == []
    assert (client.status, client.said) == (429, "Ringside is busy with other large requests.")


def test_what_was_held_is_let_go_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "MAX_HELD_BYTES", 1_000)
    heard = Heard()
    limits = RequestLimits(heard)
    for ends in ("whole", "gone", "whole"):
        client = Client("/app/chats", [b"x" * 900], ends=ends)
        asyncio.run(limits(client.scope, client.receive, client.send))
    assert len(heard.bodies) == 2


NESTED = st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(['"[', "\\", '\\"{[', "]]}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=30,
)


def depth_of(value: Any) -> int:
    match value:
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case _:
            return 0


@given(NESTED, st.booleans())
def test_nesting_is_told_without_parsing(value: Any, escaped: bool) -> None:
    body = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    depth = depth_of(value)
    assert not is_deeper_than(body, depth)
    assert depth == 0 or is_deeper_than(body, depth - 1)


@pytest.mark.parametrize("body", [b"[" * 1_000, b'{"a":' * 1_000, b'["x", ' * 40_000])
def test_deep_nesting_is_refused_in_words(body: bytes) -> None:
    client = Client("/app/chats", [body])
    assert ask(client).bodies == []
    assert (client.status, client.said) == (400, "The request nests lists and objects more than 64 deep.")


def test_a_text_of_brackets_is_a_text() -> None:
    body = json.dumps({"text": '\\"[{' * 50_000}).encode()
    assert ask(Client("/app/chats/1/send", [body])).bodies == [body]


# What lies behind


def test_what_is_not_understood_is_named_in_one_sentence(page: TestClient, service: Service) -> None:
    chat = service.create_chat().id
    for variants in ("1e400", "NaN", str(2**63), '"many"'):
        body = f'{{"text": "x", "variants": {variants}}}'
        answer = page.post(f"/app/chats/{chat}/send", content=body, headers=JSON)
        assert answer.status_code == 422
        assert answer.json()["message"].startswith("The request is not understood: variants: ")
    assert page.get(f"/app/chats/{2**63}").status_code == 422
    assert service.messages(chat) == []


def test_a_title_is_one_short_line(page: TestClient, service: Service) -> None:
    chat = service.create_chat().id
    named = page.patch(f"/app/chats/{chat}", json={"title": " a\0b\x1b[31m\n c "}).json()
    assert named["title"] == "ab[31m c"
    answer = page.patch(f"/app/chats/{chat}", json={"title": "x" * 2_000})
    assert answer.status_code == 400
    assert answer.json()["message"] == "A title has at most 200 characters; this one has 2,000."
    assert page.patch(f"/app/chats/{chat}", json={"title": "\0"}).json()["message"] == "A chat needs a title."
    assert service.chat(chat).title == "ab[31m c"


def test_a_file_brings_no_longer_title_or_folder(page: TestClient) -> None:
    chat = {"title": "long " * 1_000 + "\0", "folder": "f\0" * 300, "messages": [{"role": "user", "text": "x"}]}
    content = json.dumps({"format": "ringside-chats", "version": 1, "chats": [chat]})
    (added,) = page.post("/app/import", json={"name": "x.json", "content": content}).json()["chats"]
    assert 100 < len(added["title"]) <= MAX_TITLE_CHARS + 1
    assert len(added["folder"]) <= 61
    assert "\0" not in added["title"] + added["folder"]


def test_a_setting_too_large_for_a_number_is_said(page: TestClient) -> None:
    for name, value in (("temperature", "1" + "0" * 400), ("seed", str(2**64)), ("max_new_tokens", "9" * 100)):
        body = f'{{"prompt": "x", "settings": {{"{name}": {value}}}}}'
        answer = page.post("/app/runs", content=body, headers=JSON)
        assert answer.status_code == 400
        assert answer.json()["message"].startswith(f"{name.capitalize()} cannot be ")
        assert len(answer.json()["message"]) < 150
