"""Who may ask: the names this machine is called by, pages from elsewhere, and what of Gradio is open at all.

The page can start programs' worth of work on this machine, so a web page elsewhere must not be able to drive it: only
requests that name this machine as their host and come from this page itself (or from no page) are answered. Where other
machines may connect, each request also needs the login, see `app.login`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.listening import LOOPBACK
from app.login import Login
from app.login_page import PATH as LOGIN_PATH
from app.login_page import login_needed

_LOOPBACK_NAMES = frozenset({LOOPBACK, "localhost", "::1"})

# What Gradio's own page asks for. The rest of its routes (uploads, files, proxies, tools for developers) stays shut.
_GRADIO_PAGES = frozenset({"", "theme.css", "manifest.json", "favicon.ico", "robots.txt", "config", "pwa_icon"})
_GRADIO_FILES = frozenset({"assets", "static", "svelte", "pwa_icon"})
_GRADIO_CALLS = frozenset({"run", "queue", "heartbeat", "startup-events", "app_id", "info", "reset", "cancel"})

# Gradio compiles templates in the browser and writes styles inline; everything else stays on this machine.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' data: blob:; worker-src 'self' blob:; "
        "connect-src 'self' blob: data:; frame-ancestors 'none'; base-uri 'self'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True)
class Doors:
    """By what names this machine may be asked, and whether a login is needed.

    Attributes:
        names: host names, lower case, besides those of loopback.
        any_address: whether an address in figures will do, whichever it is. No foreign name can be made to look like
            one (DNS rebinding needs a name), and a machine does not know all of its own.
        login: what each request needs; None where only this machine can connect.
        proxies: addresses and networks of proxies that are believed when they tell for whom they ask, and that they do
            so by HTTPS.
    """

    names: frozenset[str] = frozenset()
    any_address: bool = False
    login: Login | None = None
    proxies: tuple[str, ...] = ()

    @classmethod
    def to(cls, host: str, names: Iterable[str], login: Login | None, proxies: Iterable[str] = ()) -> Doors:
        """Return the doors of a server that listens on `host`; `names` are those it is called by besides its own.

        Raises:
            ValueError: a proxy is no address.
        """
        proxies = tuple(map(_checked_proxy, proxies))
        if is_loopback(host):
            return cls(frozenset(name.lower() for name in names), login=login, proxies=proxies)
        own = socket.gethostname()
        known = {host, own, f"{own}.local", socket.getfqdn(), *names}
        return cls(frozenset(name.lower() for name in known), any_address=True, login=login, proxies=proxies)

    def know(self, host: str) -> bool:
        """Tell whether a "Host" header names this machine."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in _LOOPBACK_NAMES or (name and name in self.names):
            return True
        return self.any_address and _is_address(name)


LOCAL_ONLY = Doors()
"""This machine alone, without a login."""


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a server that listens on `host`."""
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


class Guard:
    """ASGI middleware: refuses what `refused` names, sends who has not signed in to the login, and sets the headers."""

    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self.app = app
        self._doors = doors
        self._inner = app if doors.login is None else login_needed(app, doors.login)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.lower().encode(), value.encode()) for name, value in _HEADERS.items()),
                ]
            await send(message)

        method, path = scope.get("method", "GET"), scope["path"]
        refusal = refused(Headers(scope=scope), method, path, self._doors)
        answer: ASGIApp = self._inner
        if refusal:
            answer = JSONResponse({"message": refusal, "hint": ""}, status_code=403)
        elif not is_open(path):
            answer = JSONResponse({"message": "There is nothing here.", "hint": ""}, status_code=404)
        await answer(scope, receive, send_with_headers)


def refused(headers: Headers, method: str, path: str, doors: Doors) -> str:
    """Return why a request is refused, in one sentence; empty if it is fine.

    The host guards against a foreign name that was made to point here (DNS rebinding), the origin and the browser's
    own "Sec-Fetch-Site" against pages elsewhere, and the content type against forms that need no permission.
    """
    host = headers.get("host", "")
    if not doors.know(host):
        hint = "start Ringside with --allow-name for it" if doors.any_address else f"open http://{LOOPBACK} instead"
        return f"Requests for the host {host!r} are refused; {hint}."
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return f"Requests from {origin} are refused; only the page itself may ask."
    is_page = method == "GET" and (not path.startswith("/app/") or path == LOGIN_PATH)
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_page:
        return "Requests from other sites are refused; only the page itself may ask."
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if has_body and not headers.get("content-type", "").startswith("application/json"):
        return "Only JSON is taken here."
    return ""


def is_open(path: str) -> bool:
    """Tell whether a path leads to one of the page's own routes or to what Gradio's page needs."""
    first, _, rest = path.lstrip("/").partition("/")
    if first == "app" and rest:
        return True
    if first == "gradio_api":
        return rest.partition("/")[0] in _GRADIO_CALLS
    return first in (_GRADIO_FILES if rest else _GRADIO_PAGES)


def _checked_proxy(proxy: str) -> str:
    try:
        return str(ip_network(proxy))
    except ValueError:
        raise ValueError(
            f"{proxy!r} is no address of a proxy; give --trusted-proxy one such as 127.0.0.1, or a network."
        ) from None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
