"""One running Ringside a home: whoever starts second learns where the first is instead of fighting over its files."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

from filelock import FileLock, Timeout

_WAIT_S = 10.0
_STEP_S = 0.2
_ANSWER_S = 2.0


class Instance:
    """The claim on a data folder; the lock goes with the process, however it ends.

    Args:
        folder: the data folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / "ringside.lock")
        self._address_path = folder / "ringside.address.json"

    def claim(self) -> bool:
        """Become the running instance; False if another process is it."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        self._address_path.unlink(missing_ok=True)
        return True

    def announce(self, url: str) -> None:
        """Tell later starts where the page is."""
        self._address_path.write_text(json.dumps({"url": url}))

    def running_url(self) -> str | None:
        """Return the address of the running instance once it answers; None if it does not within ten seconds."""
        deadline_s = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline_s:
            url = self._announced()
            if url is not None and _answers(url):
                return url
            time.sleep(_STEP_S)
        return None

    def release(self) -> None:
        """Give the claim back."""
        self._address_path.unlink(missing_ok=True)
        self._lock.release()

    def _announced(self) -> str | None:
        try:
            return str(json.loads(self._address_path.read_text())["url"])
        except (OSError, ValueError, KeyError):
            return None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}app/health", timeout=_ANSWER_S) as response:
            return bool(json.load(response).get("app") == "ringside")
    except (urllib.error.URLError, OSError, ValueError):
        return False
