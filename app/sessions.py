"""Which signed cookies hold no longer: those of browsers that signed out, or all that were given until now."""

from __future__ import annotations

import json
import os
import secrets
import threading
from pathlib import Path


class Sessions:
    """Sessions that were ended. Thread-safe.

    Args:
        path: of the file they are kept in, for its owner only; None keeps nothing.

    Attributes:
        epoch: signed with every cookie; another one ends all sessions.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        kept = {} if path is None else _read(path)
        self.epoch = str(kept.get("epoch", ""))
        over = kept.get("over", {})
        self._over: dict[str, int] = over if isinstance(over, dict) else {}

    def is_over(self, session: str) -> bool:
        """Tell whether a session was ended by itself."""
        return session in self._over

    def end(self, session: str, expires_s: int, now_s: float) -> None:
        """End one session; it is remembered until it would have ended by itself."""
        with self._lock:
            self._over = {each: end_s for each, end_s in self._over.items() if end_s > now_s} | {session: expires_s}
            self._keep()

    def end_all(self) -> None:
        """End every session there is."""
        with self._lock:
            self.epoch, self._over = secrets.token_hex(16), {}
            self._keep()

    def _keep(self) -> None:
        if self._path is None:
            return
        half = self._path.with_name(f"{self._path.name}.part")
        half.unlink(missing_ok=True)
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"epoch": self.epoch, "over": self._over}, file)
        half.replace(self._path)


def kept_sessions(folder: Path) -> Sessions:
    """Return those of a data folder."""
    return Sessions(folder / "login.sessions.json")


def _read(path: Path) -> dict[str, object]:
    try:
        kept = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):  # who was signed out is not known any more: everybody is
        return {"epoch": secrets.token_hex(16)}
    return kept if isinstance(kept, dict) else {}
