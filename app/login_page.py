"""The login that every request needs where other machines may connect: a page for the password, and a cookie.

Gradio's own login guards Gradio's routes alone; this stands in front of everything, event streams included.
"""

from __future__ import annotations

import json
from contextlib import suppress

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.client_address import client_address
from app.login import VALID_S, Login
from app.request_limits import RequestLimits
from app.running_instance import COOKIE

PATH = "/app/login"

_BROWSER_COOKIE = "ringside-browser"
_BROWSER_VALID_S = 365 * 24 * 3600


def login_needed(app: ASGIApp, login: Login) -> ASGIApp:
    """Return the application behind the login."""

    async def password_page(scope: Scope, receive: Receive, send: Send) -> None:
        await (await _login_answer(Request(scope, receive), login))(scope, receive, send)

    login_page = RequestLimits(password_page)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        answer: ASGIApp
        is_login = scope["type"] == "http" and scope["path"] == PATH
        cookie = connection.cookies.get(COOKIE, "")
        if login.accepts(cookie):
            answer = RedirectResponse("/", status_code=303) if is_login else _while_signed_in(app, login, cookie)
        elif is_login:
            answer = login_page
        elif "text/html" in connection.headers.get("accept", "") and scope.get("method") == "GET":
            answer = RedirectResponse(PATH, status_code=303)
        else:
            answer = _refusal(401, "You are not signed in.", f"Open {PATH} and type the password.")
        await answer(scope, receive, send)

    return guarded


def _while_signed_in(app: ASGIApp, login: Login, cookie: str) -> ASGIApp:
    """Return the application for one request: a stream that is still open ends with the session it came with."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_while_signed_in(message: Message) -> None:
            if message.get("more_body", False) and not login.accepts(cookie):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _SignedOutError
            await send(message)

        with suppress(_SignedOutError):
            await app(scope, receive, send_while_signed_in)

    return answer


class _SignedOutError(Exception):
    """The session ended while something was being sent."""


async def _login_answer(request: Request, login: Login) -> Response:
    if request.method != "POST":
        return HTMLResponse(_PAGE, headers={"Cache-Control": "no-store"})
    password = await _password(request)
    if password is None:
        return _refusal(400, "There is no password in this.", "")
    client = login.client(request.cookies.get(_BROWSER_COOKIE, ""), client_address(request))
    wait_s = await run_in_threadpool(login.try_password, client, password)  # takes long on purpose
    if wait_s is not None:
        return _refusal(403, "This is not the password, or it comes too soon.", f"Try again in {wait_s:.1f} s.")
    answer = JSONResponse({})
    is_secure = request.url.scheme == "https"  # as a trusted proxy tells it
    for name, value, max_age in (
        (COOKIE, login.cookie(), VALID_S),
        (_BROWSER_COOKIE, login.browser_cookie(), _BROWSER_VALID_S),
    ):
        answer.set_cookie(name, value, max_age=max_age, httponly=True, samesite="strict", secure=is_secure)
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
<main><form>
<h1>Ringside</h1>
<label for="password">Password</label>
<input id="password" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button>
<p role="alert"></p>
</form></main>
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
