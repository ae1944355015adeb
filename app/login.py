"""One password, cookies signed with it, and a wait for whoever guesses. `app.login_page` asks for it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from app.sessions import Sessions

MIN_PASSWORD_CHARS = 8

VALID_S = 30 * 24 * 3600
"""How long one stays signed in."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0
_FORGIVEN_S = 3600.0
_MOST_CLIENTS = 1024


class Login:
    """Knows the password, signs cookies, and makes whoever guesses wait.

    Args:
        salt: kept from start to start, so that the same password leaves people signed in; see `kept_salt`.
        clock: seconds since 1970.
        sessions: those that were ended; by default none, and only this process knows of later ones.

    Attributes:
        on_all_signed_out: called once no cookie holds any more.

    Raises:
        ValueError: the password is too short.
    """

    def __init__(
        self,
        password: str,
        salt: bytes,
        clock: Callable[[], float] = time.time,
        sessions: Sessions | None = None,
    ) -> None:
        if len(password) < MIN_PASSWORD_CHARS:
            raise ValueError(f"The password has {len(password)} characters; choose at least {MIN_PASSWORD_CHARS}")
        self._salt = salt
        self._key = self._derived(password)
        self._clock = clock
        self._sessions = sessions or Sessions()
        self.on_all_signed_out: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()  # by client: wrong tries, when it may go on

    def cookie(self) -> str:
        """Return a new session's cookie: when it ends and a name of its own, signed."""
        session = f"{int(self._clock() + VALID_S)}-{secrets.token_hex(8)}"
        return f"{session}.{self._session_signature(session)}"

    def accepts(self, cookie: str) -> bool:
        """Tell whether a cookie was signed here and still holds."""
        session, _, signature = cookie.partition(".")
        if not _is_same(signature, self._session_signature(session)) or self._sessions.is_over(session):
            return False
        return self._clock() < _expires_s(session)

    def sign_out(self, cookie: str) -> None:
        """End the session of a cookie; one that does not hold is fine."""
        if self.accepts(cookie):
            session = cookie.partition(".")[0]
            self._sessions.end(session, _expires_s(session), self._clock())

    def sign_out_all(self) -> None:
        """End every session, here and on every other machine."""
        self._sessions.end_all()
        self.on_all_signed_out()

    def browser_cookie(self) -> str:
        """Return what a browser keeps that has signed in once, signed out or not."""
        name = secrets.token_hex(8)
        return f"{name}.{self._signature(f'browser {name}')}"

    def client(self, browser_cookie: str, address: str) -> str:
        """Return for whom tries of the password count.

        That is the address; but a browser that has signed in before counts by itself, so that nobody who guesses from
        the same address, as all do behind a proxy that is not trusted, makes it wait.
        """
        name, _, signature = browser_cookie.partition(".")
        is_known = _is_same(signature, self._signature(f"browser {name}"))
        return f"browser {name}" if is_known else address

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
            if now_s > go_on_at_s + _FORGIVEN_S:
                num_wrong = 0
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

    def _session_signature(self, session: str) -> str:
        return self._signature(f"{self._sessions.epoch} {session}")

    def _signature(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def _is_same(given: str, signature: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), signature.encode())


def _expires_s(session: str) -> int:
    return int(session.partition("-")[0])


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
