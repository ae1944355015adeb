"""The login that every request needs where other machines may connect: one password, one signed cookie.

Gradio's own login guards Gradio's routes alone; this stands in front of everything, event streams included.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.request_limits import RequestLimits
from app.running_instance import COOKIE

MIN_PASSWORD_CHARS = 8
PATH = "/app/login"

_VALID_S = 30 * 24 * 3600
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0
_MOST_CLIENTS = 1024


class Login:
    """Knows the password, signs cookies, and makes whoever guesses wait.

    Args:
        salt: kept from start to start, so that the same password leaves people signed in; see `kept_salt`.
        clock: seconds since 1970.

    Raises:
        ValueError: the password is too short.
    """

    def __init__(self, password: str, salt: bytes, clock: Callable[[], float] = time.time) -> None:
        if len(password) < MIN_PASSWORD_CHARS:
            raise ValueError(f"The password has {len(password)} characters; choose at least {MIN_PASSWORD_CHARS}")
        self._salt = salt
        self._key = self._derived(password)
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()  # by client: wrong tries, when it may go on

    def cookie(self) -> str:
        """Return a cookie's value: when it ends, signed."""
        expires = str(int(self._clock() + _VALID_S))
        return f"{expires}.{self._signature(expires)}"

    def accepts(self, cookie: str) -> bool:
        """Tell whether a cookie was signed here and still holds."""
        expires, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(expires).encode()):
            return False
        return self._clock() < int(expires)

    def try_password(self, client: str, password: str) -> float | None:
        """Return None if this is the password, else the seconds until the client may try again.

        Each wrong try doubles the wait; a try during the wait is not looked at. It counts before it is looked at, so
        that tries at the same moment do not pass together.
        """
        with self._lock:
            num_wrong, go_on_at_s = self._wrong.get(client, (0, 0.0))
            now_s = self._clock()
            if now_s < go_on_at_s:
                return go_on_at_s - now_s
            wait_s: float = min(_FIRST_WAIT_S * 2 ** min(num_wrong, 16), _LONGEST_WAIT_S)
            self._wrong[client] = (num_wrong + 1, now_s + wait_s)
            self._wrong.move_to_end(client)
            while len(self._wrong) > _MOST_CLIENTS:
                self._wrong.popitem(last=False)
        if not hmac.compare_digest(self._derived(password), self._key):
            return wait_s
        with self._lock:
            self._wrong.pop(client, None)
        return None

    def _derived(self, password: str) -> bytes:
        return hashlib.scrypt(password.encode("utf-8", "surrogatepass"), salt=self._salt, n=2**14, r=8, p=1)

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def kept_salt(folder: Path) -> bytes:
    """Return the random bytes kept for this in the data folder, made at the first call."""
    path = folder / "login.salt"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(descriptor, "wb") as file:
        file.write(salt := secrets.token_bytes(16))
    return salt


def login_needed(app: ASGIApp, login: Login) -> ASGIApp:
    """Return the application behind the login."""

    async def password_page(scope: Scope, receive: Receive, send: Send) -> None:
        await (await _login_answer(Request(scope, receive), login))(scope, receive, send)

    login_page = RequestLimits(password_page)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        answer: ASGIApp
        is_login = scope["type"] == "http" and scope["path"] == PATH
        if login.accepts(connection.cookies.get(COOKIE, "")):
            answer = RedirectResponse("/", status_code=303) if is_login else app
        elif is_login:
            answer = login_page
        elif "text/html" in connection.headers.get("accept", "") and scope.get("method") == "GET":
            answer = RedirectResponse(PATH, status_code=303)
        else:
            answer = _refusal(401, "You are not signed in.", f"Open {PATH} and type the password.")
        await answer(scope, receive, send)

    return guarded


async def _login_answer(request: Request, login: Login) -> Response:
    if request.method != "POST":
        return HTMLResponse(_PAGE, headers={"Cache-Control": "no-store"})
    password = await _password(request)
    if password is None:
        return _refusal(400, "There is no password in this.", "")
    client = request.client.host if request.client else ""
    wait_s = await run_in_threadpool(login.try_password, client, password)  # takes long on purpose
    if wait_s is not None:
        return _refusal(403, "This is not the password, or it comes too soon.", f"Try again in {wait_s:.1f} s.")
    answer = JSONResponse({})
    answer.set_cookie(COOKIE, login.cookie(), max_age=_VALID_S, httponly=True, samesite="strict")
    return answer


async def _password(request: Request) -> str | None:
    try:
        password = json.loads(await request.body())["password"]
    except (ValueError, TypeError, KeyError):
        return None
    return password if isinstance(password, str) else None


def _refusal(status: int, message: str, hint: str) -> JSONResponse:
    return JSONResponse({"message": message, "hint": hint}, status_code=status)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Ringside: sign in</title>
<style>
:root { color-scheme: light dark; --line: #d4d4d8; --accent: #0f766e; --wrong: #b91c1c; }
@media (prefers-color-scheme: dark) { :root { --line: #3f3f46; --accent: #2dd4bf; --wrong: #f87171; } }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; font: 16px/1.5 system-ui, sans-serif; }
form { width: min(20rem, calc(100vw - 3rem)); display: grid; gap: .75rem; }
h1 { margin: 0; font-size: 1.25rem; }
label { font-size: .875rem; }
input, button { font: inherit; padding: .6rem .75rem; border: 1px solid var(--line); border-radius: .5rem; }
button { border-color: var(--accent); background: var(--accent); color: Canvas; cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
p { margin: 0; min-height: 1.5em; color: var(--wrong); font-size: .875rem; }
</style>
</head>
<body>
<form>
<h1>Ringside</h1>
<label for="password">Password</label>
<input id="password" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button>
<p role="alert"></p>
</form>
<script>
// who comes by a link from another site brings no cookie at first
fetch("/app/health").then((answer) => answer.ok && location.replace("/"));
const form = document.querySelector("form"), field = form.querySelector("input"), said = form.querySelector("p");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  said.textContent = "";
  try {
    const answer = await fetch("/app/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ password: field.value }),
    });
    if (answer.ok) return location.replace("/");
    const { message, hint } = await answer.json();
    said.textContent = `${message} ${hint}`;
  } catch {
    said.textContent = "Ringside does not answer.";
  }
  field.select();
});
</script>
</body>
</html>
"""
