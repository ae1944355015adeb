"""Every route, asked for what nobody should ask: no answer is of the 500s, and the application goes on answering."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.routing import Mount
from starlette.testclient import TestClient

from app.doors import is_open
from app.server import build_app, build_routes
from app.service import Service
from tests.app.conftest import EchoService
from tests.app.test_doors import paths_of

LOCAL = "http://127.0.0.1:7878"
JSON = {"content-type": "application/json"}

NUMBERS = (
    "0",
    "-1",
    "1",
    "1.5",
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    str(2**31),
    str(2**63 - 1),
    str(-(2**63)),
    str(2**63),
    str(2**64),
    "9" * 400,
    "9" * 5_000,
    "0x10",
    "٣",
)
TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\udfff\ud800",
    "../..",
    "%",
    "x" * 5_000,
    "\u202e",
    "'\"; DROP",
    "\r\nA: b",
    "[",
)
JSON_VALUES = (
    *(number for number in NUMBERS if number not in ("0x10", "٣")),
    *(json.dumps(text) for text in TEXTS),
    "null",
    "true",
    "[]",
    "{}",
    "[null]",
    '{"": {}}',
    "[" * 60 + "]" * 60,
    '{"a":' * 60 + "1" + "}" * 60,
)
BODIES: tuple[str | bytes, ...] = (
    *JSON_VALUES,
    "",
    "{",
    "]",
    "\ufeff{}",
    "[" * 20_000,
    '{"a":' * 20_000,
    "[" * 900 + "]" * 900,
    '{"text": ' + "[" * 900 + "]" * 900 + "}",
    b"\xff\xfe",
    b"\0",
    b'{"text": "\xed\xa0\x80"}',
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "BREW")


def addresses(app: FastAPI) -> list[tuple[str, str, dict[str, Any]]]:
    """Return method, path and description of every route of ours."""
    described = app.openapi()["paths"]
    found = [(method.upper(), path, described[path][method]) for path in described for method in described[path]]
    assert len(found) > 70
    return found


def filled(path: str, values: dict[str, str], chat: int) -> str:
    for name in ("chat_id", "message_id", "number", "name", "run_id", "format_"):
        path = path.replace(f"{{{name}}}", values.get(name, str(chat)))
    assert "{" not in path, path
    return path


def parameters(described: dict[str, Any], where: str) -> list[str]:
    return [each["name"] for each in described.get("parameters", ()) if each["in"] == where]


def fields(app: FastAPI, described: dict[str, Any]) -> dict[str, str]:
    """Return the fields of a route's body, each with JSON that it would take."""
    content = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    reference = next((each["$ref"] for each in (content, *content.get("anyOf", ())) if "$ref" in each), None)
    if reference is None:
        return {}
    properties = app.openapi()["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
    samples = {"string": '"x"', "integer": "1", "boolean": "false", "number": "1", "array": "[]", "object": "{}"}
    return {name: samples.get(each.get("type", ""), "null") for name, each in properties.items()}


@pytest.fixture
def service(echo_service: EchoService) -> Service:
    return echo_service(rate="max", max_new_tokens=3)


@pytest.fixture
def app(service: Service) -> FastAPI:
    return build_routes(service, stopping=lambda: True)  # streams end at once


@pytest.fixture
def page(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url=LOCAL, raise_server_exceptions=False, follow_redirects=False) as client:
        yield client
        assert client.get("/app/health").json() == {"app": "ringside"}
        chat = client.post("/app/chats").json()["id"]
        assert chat in [row["id"] for row in client.get("/app/chats").json()["chats"]]


@pytest.fixture
def chat(service: Service) -> int:
    """A chat with a reply, which is also the number of a message."""
    chat_id = service.create_chat().id
    assert service.send(chat_id, "About rivers").wait_until_finished(60)
    return chat_id


def ask(page: TestClient, method: str, url: str, body: str | bytes | None = None) -> None:
    content = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    answer = page.request(method, url, content=content, headers=JSON if content else {})
    assert answer.status_code < 500, f"{method} {url[:200]} {str(body)[:200]}: {answer.text[:300]}"
    if answer.status_code >= 400 and method != "HEAD" and url.startswith("/app/") and "/assets/" not in url:
        assert answer.json()["message"].endswith("."), f"{method} {url[:200]}: {answer.text[:300]}"


def gradio_paths(app: FastAPI) -> list[str]:
    """Return the paths of Gradio that are open and answer at once."""
    found = {path for mounted in app.routes if isinstance(mounted, Mount) for _, path in paths_of(mounted.routes)}
    return sorted(path for path in found if is_open(path) and "heartbeat" not in path)


def quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def test_no_number_or_text_in_an_address_breaks_a_route(app: FastAPI, page: TestClient, chat: int) -> None:
    for method, path, described in addresses(app):
        for name in parameters(described, "path"):
            for value in (*NUMBERS, *TEXTS):
                ask(page, method, filled(path, {name: quoted(value)}, chat))


def test_no_number_or_text_in_a_query_breaks_a_route(app: FastAPI, page: TestClient, chat: int) -> None:
    for method, path, described in addresses(app):
        names = parameters(described, "query")
        plain = "&".join(f"{name}=1" for name in names)
        for name in names:
            for value in (*NUMBERS, *TEXTS):
                ask(page, method, f"{filled(path, {}, chat)}?{name}={quoted(value)}&{plain}")


def test_no_body_breaks_a_route(app: FastAPI, page: TestClient, chat: int) -> None:
    for method, path, _ in addresses(app):
        for body in BODIES:
            ask(page, method, filled(path, {}, chat), body)


def test_no_value_in_a_body_breaks_a_route(app: FastAPI, page: TestClient, chat: int) -> None:
    for method, path, described in addresses(app):
        samples = fields(app, described)
        for name in samples:
            for value in JSON_VALUES:
                others = {**samples, name: value}
                body = ", ".join(f'"{field}": {sample}' for field, sample in others.items())
                ask(page, method, filled(path, {}, chat), f"{{{body}}}")


def test_no_method_breaks_a_route(app: FastAPI, page: TestClient, chat: int) -> None:
    for path in {path for _, path, _ in addresses(app)}:
        for method in METHODS:
            ask(page, method, filled(path, {}, chat))


@pytest.mark.parametrize("value", JSON_VALUES)
def test_no_setting_of_a_run_breaks_it(page: TestClient, service: Service, value: str) -> None:
    from app.chat_settings import flat_settings

    for name in flat_settings(service.settings()):
        if name not in ("backend", "model"):
            ask(page, "POST", "/app/runs", f'{{"prompt": "x", "settings": {{"{name}": {value}}}}}')
    ask(page, "GET", "/app/runs")
    ask(page, "GET", "/app/status")
    ask(page, "GET", "/app/outlook")


def test_nothing_breaks_gradio_s_routes(service: Service) -> None:
    app = build_app(service)
    with TestClient(app, base_url=LOCAL, raise_server_exceptions=False, follow_redirects=False) as page:
        for path in gradio_paths(app):
            for value in (*NUMBERS, *TEXTS):
                ask(page, "GET", re.sub(r"{[^}]*}", quoted(value), path))
            for method in METHODS:
                ask(page, method, re.sub(r"{[^}]*}", "1", path))
        for path in ("run/predict", "queue/join", "reset", "cancel"):
            for body in BODIES:
                ask(page, "POST", f"/gradio_api/{path}", body)
        for event in page.get("/config").json()["dependencies"]:
            for value in JSON_VALUES:
                for data in (value, f"[{value}]", f"[null{f', {value}' * (len(event['inputs']) - 1)}]"):
                    ask(page, "POST", "/gradio_api/run/predict", f'{{"data": {data}, "fn_index": {event["id"]}}}')
        assert page.get("/app/health").json() == {"app": "ringside"}
        assert page.get("/").status_code == 200
