"""Who may ask what: foreign pages and names, Gradio's own routes, and the login that guards every route of both."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.routing import Mount
from starlette.testclient import TestClient

from app.doors import LOCAL_ONLY, Doors, is_loopback, is_open
from app.login import Login, kept_salt
from app.running_instance import COOKIE
from app.server import build_app, build_routes
from tests.app.conftest import EchoService
from tests.app.test_server import running

PASSWORD = "long enough"
LOCAL = "http://127.0.0.1:7878"
JSON = {"content-type": "application/json"}


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def login(clock: Clock) -> Login:
    return Login(PASSWORD, b"salt", clock)


@pytest.fixture
def client(echo_service: EchoService, login: Login) -> Iterator[TestClient]:
    """A browser on another machine, which has not signed in."""
    app = build_routes(echo_service(), doors=Doors.to("0.0.0.0", [], login))
    with TestClient(app, base_url="http://192.168.1.5:7878", follow_redirects=False) as page:
        yield page


def sign_in(page: TestClient, password: str = PASSWORD) -> Any:
    return page.post("/app/login", json={"password": password})


def every_path(app: FastAPI) -> set[tuple[str, str]]:
    """Return method and path of every route, ours and Gradio's."""
    ours = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    gradio = {route for mounted in app.routes if isinstance(mounted, Mount) for route in paths_of(mounted.routes)}
    return ours | gradio


def paths_of(routes: list[Any]) -> Iterator[tuple[str, str]]:
    for route in routes:
        yield from paths_of(getattr(route, "routes", None) or [])
        for method in getattr(route, "methods", None) or ():
            yield method, route.path


# Gradio's own doors


@pytest.fixture
def whole(echo_service: EchoService) -> FastAPI:
    """The application with its page."""
    return build_app(echo_service())


def test_no_route_of_gradio_reads_or_takes_a_file(whole: FastAPI, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("nobody may read this")
    with TestClient(whole, base_url=LOCAL) as page:
        for path in (secret, tmp_path / "chats.sqlite", Path("/etc/passwd")):
            for prefix in (
                "/gradio_api/file=",
                "/gradio_api/file",
                "/file=",
                "/file",
                "/static/..",
                "/assets/../../..",
            ):
                answer = page.get(f"{prefix}{path}")
                assert answer.status_code in (403, 404), f"{prefix}{path}"
                assert "nobody" not in answer.text
        for url in ("/gradio_api/proxy=http://127.0.0.1:1/", "/gradio_api/file=http://127.0.0.1:1/"):
            assert page.get(url).status_code == 404
        for url in ("/gradio_api/upload", "/upload", "/gradio_api/process_recording", "/gradio_api/component_server"):
            assert page.post(url, json={}).status_code == 404, url
            assert page.post(url, files={"files": b"x"}).status_code == 403, url


def test_what_gradio_s_page_needs_is_open(whole: FastAPI) -> None:
    with TestClient(whole, base_url=LOCAL) as page:
        for path in ("/", "/theme.css", "/manifest.json", "/favicon.ico"):
            assert page.get(path).status_code == 200, path
        first = page.get("/config").json()["dependencies"][0]["id"]
        shown = page.post("/gradio_api/run/predict", json={"data": [None], "fn_index": first})
    assert "data" in shown.json()


@pytest.mark.parametrize(
    "path",
    [
        "/login",
        "/dev/reload",
        "/monitoring/summary",
        "/vibe-edit",
        "/proxy=http://x",
        "/gradio_api",
        "/app",
        "/theme.css/x",
    ],
)
def test_the_rest_of_gradio_is_shut(path: str) -> None:
    assert not is_open(path)


# Names and origins


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("192.168.1.5:7878", True),
        ("[fe80::1]:7878", True),
        ("localhost", True),
        (f"{socket.gethostname()}:7878", True),
        ("chat.example", True),
        ("CHAT.example:443", True),
        ("evil.example", False),
        ("192.168.1.5.evil.example", False),
        ("[", False),
        ("", False),
    ],
)
def test_other_machines_may_use_this_one_s_names_and_addresses_in_figures(host: str, known: bool, login: Login) -> None:
    assert Doors.to("0.0.0.0", ["chat.example"], login).know(host) is known


def test_on_loopback_no_address_but_its_own_is_known() -> None:
    assert not LOCAL_ONLY.know("192.168.1.5:7878")
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.5", "example.org", "")))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:7878"},
        {"origin": "https://evil.example"},
        {"origin": "http://192.168.1.6:7878"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_a_foreign_page_is_refused_even_with_the_cookie(client: TestClient, headers: dict[str, str]) -> None:
    assert sign_in(client).status_code == 200
    assert client.post("/app/chats", headers=headers).status_code == 403
    assert client.get("/app/stream", headers=headers).status_code == 403
    assert client.get("/app/chats").json() == {"chats": []}


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
def test_a_foreign_page_opens_no_websocket(echo_service: EchoService, headers: dict[str, str]) -> None:
    with running(echo_service()) as server:
        port = server.bound.getsockname()[1]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        upgrade = {
            "Host": f"127.0.0.1:{port}",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        }
        connection.request("GET", "/app/stream", headers={**upgrade, **headers})
        assert connection.getresponse().status == 403
        connection.close()


# The login


def test_without_the_login_every_route_is_shut(echo_service: EchoService, login: Login) -> None:
    app = build_app(echo_service(), doors=Doors.to("0.0.0.0", [], login))
    paths = every_path(app)
    assert {("GET", "/app/stream"), ("GET", "/app/assets/{name}"), ("GET", "/config")} <= paths
    paths |= {("POST", f"/gradio_api/{name}") for name in ("run/predict", "queue/join", "upload", "heartbeat/x")}
    with TestClient(app, base_url="http://192.168.1.5:7878", follow_redirects=False) as page:
        for method, path in sorted(paths):
            status = page.request(method, path).status_code
            assert status == (401 if is_open(path) else 404), f"{method} {path}"
        page.cookies.set(COOKIE, "2000000000." + "0" * 64)
        assert page.get("/app/chats").status_code == 401


def test_a_person_gets_the_login_and_with_the_password_the_page(client: TestClient) -> None:
    asked = client.get("/", headers={"accept": "text/html,*/*"})
    assert (asked.status_code, asked.headers["location"]) == (303, "/app/login")
    assert 'type="password"' in client.get("/app/login").text
    answer = sign_in(client)
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/app/chats").json() == {"chats": []}
    assert client.get("/app/login").headers["location"] == "/"


def test_the_login_is_reached_by_a_link_from_elsewhere(client: TestClient) -> None:
    assert client.get("/app/login", headers={"sec-fetch-site": "cross-site"}).status_code == 200


@pytest.mark.parametrize("password", ["", "long enough ", "LONG ENOUGH", "\ud800"])
def test_a_wrong_password_opens_nothing(client: TestClient, password: str) -> None:
    answer = client.post(
        "/app/login", content=f'{{"password": "{password}"}}'.encode("utf-8", "surrogatepass"), headers=JSON
    )
    assert answer.status_code in (400, 403)
    assert "set-cookie" not in answer.headers
    assert client.get("/app/chats").status_code == 401


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"password": 1}', b"[" * 3_000, b"NaN", b"\xff"])
def test_a_body_that_holds_no_password_is_refused(client: TestClient, body: bytes) -> None:
    assert client.post("/app/login", content=body, headers=JSON).status_code == 400


def test_whoever_has_not_signed_in_sends_little(client: TestClient) -> None:
    body = b'{"password": "' + b"x" * 10_000 + b'"}'
    assert client.post("/app/login", content=body, headers=JSON).status_code == 413
    assert client.post("/app/import", content=body, headers=JSON).status_code == 401


def test_whoever_guesses_waits_longer_each_time_and_others_do_not(login: Login, clock: Clock) -> None:
    waits = []
    for _ in range(9):
        wait_s = login.try_password("10.0.0.1", "guess")
        assert wait_s is not None
        waits.append(wait_s)
        assert login.try_password("10.0.0.1", PASSWORD) is not None, "not looked at during the wait"
        clock.now_s += wait_s
    assert waits == sorted(waits)
    assert waits[0] < 1
    assert waits[-1] == 60
    assert login.try_password("10.0.0.2", PASSWORD) is None
    assert login.try_password("10.0.0.1", PASSWORD) is None
    assert login.try_password("10.0.0.1", "guess") == waits[0], "forgiven"


def _other_password() -> Login:
    return Login("another password", b"salt")


def _other_machine() -> Login:
    return Login(PASSWORD, b"other")


@pytest.mark.parametrize("other", [_other_password, _other_machine])
def test_a_cookie_holds_for_this_password_here_and_not_for_ever(
    other: Callable[[], Login], login: Login, clock: Clock
) -> None:
    cookie = login.cookie()
    assert login.accepts(cookie)
    assert Login(PASSWORD, b"salt", clock).accepts(cookie)
    assert not other().accepts(cookie)
    expires, _, signature = cookie.partition(".")
    for forged in ("", ".", f"{int(expires) + 1}.{signature}", f"{expires}.", f"{cookie}0", "\udcff"):
        assert not login.accepts(forged), forged
    clock.now_s += 31 * 24 * 3600
    assert not login.accepts(cookie)


def test_a_short_password_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        Login("short", b"salt")


def test_the_salt_is_kept_and_for_its_owner_only(tmp_path: Path) -> None:
    salt = kept_salt(tmp_path)
    assert len(salt) == 16
    assert kept_salt(tmp_path) == salt
    assert (tmp_path / "login.salt").stat().st_mode & 0o077 == 0
