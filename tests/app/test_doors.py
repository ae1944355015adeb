"""Who may ask what: foreign pages and names, Gradio's own routes, and the login that guards every route of both."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Mount
from starlette.testclient import TestClient

from app.doors import LOCAL_ONLY, Doors, is_loopback, is_open
from app.login import Login, kept_salt
from app.running_instance import COOKIE
from app.server import build_app, build_routes
from app.service import Service
from app.sessions import Sessions, kept_sessions
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
    session, _, signature = cookie.partition(".")
    expires, _, name = session.partition("-")
    later = f"{int(expires) + 1}-{name}.{signature}"
    for forged in ("", ".", later, f"{expires}.{signature}", f"{session}.", f"{cookie}0", "\udcff"):
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


# Leaving


def other_browser(client: TestClient) -> TestClient:
    return TestClient(client.app, base_url="http://192.168.1.5:7878", follow_redirects=False)


def test_signing_out_ends_this_session_and_no_other(client: TestClient) -> None:
    other = other_browser(client)
    assert sign_in(client).status_code == sign_in(other).status_code == 200
    stolen = client.cookies[COOKIE]
    left = client.post("/app/sign-out")
    assert left.status_code == 200
    assert "max-age=0" in left.headers["set-cookie"].lower()
    client.cookies.set(COOKIE, stolen)
    assert client.get("/app/chats").status_code == 401
    assert other.get("/app/chats").status_code == 200


def test_signing_out_everywhere_ends_all_sessions(client: TestClient, login: Login) -> None:
    other = other_browser(client)
    assert sign_in(client).status_code == sign_in(other).status_code == 200
    told: list[str] = []
    login.on_all_signed_out = lambda: told.append(login.cookie())
    assert client.post("/app/sign-out", json={"everywhere": True}).status_code == 200
    assert other.get("/app/chats").status_code == 401
    assert login.accepts(told[0]), "other commands are let in again"
    assert sign_in(other).status_code == 200
    assert other.get("/app/chats").status_code == 200


def test_nobody_signs_others_out_without_the_password(client: TestClient, login: Login) -> None:
    cookie = login.cookie()
    assert client.post("/app/sign-out", json={"everywhere": True}).status_code == 401
    assert login.accepts(cookie)


def test_without_a_password_there_is_nothing_to_sign_out_of(echo_service: EchoService) -> None:
    with TestClient(build_routes(echo_service()), base_url=LOCAL) as page:
        assert page.get("/app/session").json() == {"login": False}
        answer = page.post("/app/sign-out")
        assert answer.status_code == 400
        assert answer.json()["message"] == "There is no password, so nobody is signed in."


def test_the_page_is_told_that_there_is_a_password(client: TestClient) -> None:
    assert client.get("/app/session").status_code == 401
    sign_in(client)
    assert client.get("/app/session").json() == {"login": True}


def test_an_open_stream_ends_with_the_session_it_came_with(echo_service: EchoService, login: Login) -> None:
    service = echo_service()
    doors = Doors.to("127.0.0.1", [], login)
    with running(service, doors) as server, httpx.Client(base_url=server.url, timeout=20) as tab:
        assert tab.post("/app/login", json={"password": PASSWORD}).status_code == 200
        with tab.stream("GET", "/app/stream") as stream:
            lines = stream.iter_lines()
            assert any("event: status" in line for line in lines)
            login.sign_out_all()
            service.create_chat("Not for those who are signed out")
            assert not any("event: chats" in line for line in lines), "it ends, and tells nothing more"


def test_ended_sessions_stay_ended_after_a_restart(tmp_path: Path, clock: Clock) -> None:
    def started(password: str = PASSWORD) -> Login:
        return Login(password, b"salt", clock, kept_sessions(tmp_path))

    login = started()
    one, two = login.cookie(), login.cookie()
    login.sign_out(one)
    assert (started().accepts(one), started().accepts(two)) == (False, True)
    assert not started("another password").accepts(two), "a changed password signs everybody out"
    started().sign_out_all()
    assert not started().accepts(two)
    assert (tmp_path / "login.sessions.json").stat().st_mode & 0o077 == 0


def test_what_was_signed_out_is_forgotten_once_it_would_have_ended(clock: Clock) -> None:
    sessions = Sessions()
    login = Login(PASSWORD, b"salt", clock, sessions)
    first = login.cookie()
    login.sign_out(first)
    clock.now_s += 31 * 24 * 3600
    second = login.cookie()
    login.sign_out(second)
    assert not sessions.is_over(first.partition(".")[0])
    assert sessions.is_over(second.partition(".")[0])


def test_a_damaged_file_of_sessions_signs_everybody_out(tmp_path: Path) -> None:
    cookie = Login(PASSWORD, b"salt", sessions=kept_sessions(tmp_path)).cookie()
    (tmp_path / "login.sessions.json").write_text("{")
    assert not Login(PASSWORD, b"salt", sessions=kept_sessions(tmp_path)).accepts(cookie)


# Behind a proxy


PROXY = "10.0.0.9"


def behind_proxy(service: Service, login: Login, address: str, proxies: tuple[str, ...] = (PROXY,)) -> TestClient:
    app = build_routes(service, doors=Doors.to("0.0.0.0", ["chat.example"], login, proxies))
    return TestClient(app, base_url="http://chat.example", client=(address, 1), follow_redirects=False)


@pytest.mark.parametrize(
    ("address", "proxies", "is_secure"),
    [(PROXY, (PROXY,), True), (PROXY, ("10.0.0.0/24",), True), (PROXY, (), False), ("10.0.0.8", (PROXY,), False)],
)
def test_the_cookie_is_for_https_only_where_a_trusted_proxy_says_so(
    echo_service: EchoService, login: Login, address: str, proxies: tuple[str, ...], is_secure: bool
) -> None:
    page = behind_proxy(echo_service(), login, address, proxies)
    headers = {"x-forwarded-proto": "https", "x-forwarded-for": "1.2.3.4"}
    answer = page.post("/app/login", json={"password": PASSWORD}, headers=headers)
    assert answer.status_code == 200
    cookies = answer.headers.get_list("set-cookie")
    assert len(cookies) == 2
    assert all(("secure" in cookie.lower()) is is_secure for cookie in cookies)


def guess(page: TestClient, forwarded_for: str, password: str = "a guess") -> int:
    headers = {"x-forwarded-for": forwarded_for}
    return page.post("/app/login", json={"password": password}, headers=headers).status_code


def test_behind_a_trusted_proxy_the_one_who_guesses_waits_alone(echo_service: EchoService, login: Login) -> None:
    page = behind_proxy(echo_service(), login, PROXY)
    assert guess(page, "1.2.3.4") == 403
    assert guess(page, "1.2.3.4", PASSWORD) == 403
    assert guess(page, "6.6.6.6, 1.2.3.4", PASSWORD) == 403, "what a client puts in front is not believed"
    assert guess(page, "1.2.3.5", PASSWORD) == 200


def test_nobody_escapes_the_wait_by_naming_another_address(echo_service: EchoService, login: Login) -> None:
    page = behind_proxy(echo_service(), login, "10.0.0.8")
    assert guess(page, "1.2.3.4") == 403
    assert guess(page, "1.2.3.5", PASSWORD) == 403


def test_a_browser_that_has_signed_in_before_does_not_wait_for_others(client: TestClient) -> None:
    assert sign_in(client).status_code == 200
    assert client.post("/app/sign-out").status_code == 200
    stranger = other_browser(client)  # the same address
    assert sign_in(stranger, "a guess").status_code == 403
    assert sign_in(stranger).status_code == 403
    assert sign_in(client).status_code == 200


def test_a_browser_that_guesses_waits_though_it_has_signed_in_before(client: TestClient) -> None:
    assert sign_in(client).status_code == 200
    client.cookies.delete(COOKIE)
    assert sign_in(client, "a guess").status_code == 403
    assert sign_in(client).status_code == 403


@pytest.mark.parametrize("cookie", ["", ".", "x.y", "1.é"])
def test_no_made_up_cookie_is_a_browser_s(login: Login, cookie: str) -> None:
    assert login.client(cookie, "10.0.0.1") == "10.0.0.1"
    assert login.client(login.browser_cookie(), "10.0.0.1") != "10.0.0.1"


def test_wrong_tries_of_long_ago_are_forgiven(login: Login, clock: Clock) -> None:
    first = login.try_password("10.0.0.1", "guess")
    for _ in range(5):
        clock.now_s += 61
        login.try_password("10.0.0.1", "guess")
    clock.now_s += 2 * 3600
    assert login.try_password("10.0.0.1", "guess") == first


@pytest.mark.parametrize("proxy", ["proxy.example", "*", "", "10.0.0.0/33"])
def test_a_proxy_is_trusted_by_its_address_only(login: Login, proxy: str) -> None:
    with pytest.raises(ValueError, match="is no address of a proxy; give --trusted-proxy one such as"):
        Doors.to("0.0.0.0", [], login, [proxy])
