"""One running Ringside a home: whoever starts second learns where the first is instead of fighting over its files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from filelock import FileLock, Timeout

from app.running_instance import RunningInstance

_WAIT_S = 30.0
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

    def announce(self, url: str, cookie: str = "") -> None:
        """Tell later starts where the page is.

        Args:
            cookie: what lets them in where a login is needed; whoever may read the data folder may read the chats.
        """
        self._address_path.unlink(missing_ok=True)
        descriptor = os.open(self._address_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"url": url, "cookie": cookie}, file)

    def running(self) -> RunningInstance | None:
        """Return the running instance once it answers; None if it does not within half a minute."""
        deadline_s = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline_s:
            announced = self._announced()
            if (url := announced.get("url")) is not None:
                instance = RunningInstance(url, announced.get("cookie", ""))
                if instance.answers(_ANSWER_S):
                    return instance
            time.sleep(_STEP_S)
        return None

    def release(self) -> None:
        """Give the claim back."""
        self._address_path.unlink(missing_ok=True)
        self._lock.release()

    def _announced(self) -> dict[str, str]:
        try:
            announced = json.loads(self._address_path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return announced if isinstance(announced, dict) else {}
