"""The Ringside that is already running, as another process asks it through its routes. Imports little."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from backends.errors import RingsideError

COOKIE = "ringside-login"
"""Name of the cookie that lets one in where a login is needed, see `app.login`."""

_ANSWER_S = 30.0


class RunningInstance:
    """The instance at an address of this machine, asked through its routes.

    Args:
        url: with a slash at the end.
        cookie: what it lets one in for; empty where it needs none.
    """

    def __init__(self, url: str, cookie: str = "") -> None:
        self.url = url
        self._headers = {"Cookie": f"{COOKIE}={cookie}"} if cookie else {}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by way of a proxy

    def answers(self, timeout_s: float) -> bool:
        """Tell whether Ringside is there."""
        try:
            request = urllib.request.Request(f"{self.url}app/health", headers=self._headers)
            with self._opener.open(request, timeout=timeout_s) as response:
                return bool(json.load(response).get("app") == "ringside")
        except (urllib.error.URLError, OSError, ValueError):
            return False

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of a route under /app/; a body makes it a POST.

        Raises:
            RingsideError: what the instance said is wrong, or that it is gone.
        """
        with self.opened(path, body) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    @contextmanager
    def opened(self, path: str, body: Mapping[str, Any] | None = None) -> Iterator[IO[bytes]]:
        """Open the answer of a route, to be read. Raises RingsideError as `ask` does."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}app/{path}", data, headers)
        try:
            with self._opener.open(request, timeout=_ANSWER_S) as response:
                yield response
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            raise RingsideError(
                f"The running Ringside at {self.url} does not answer any more ({error}).",
                "What it had written is kept; start it again to go on.",
            ) from error


def _refusal(error: urllib.error.HTTPError) -> RingsideError:
    try:
        said = json.load(error)
        return RingsideError(str(said["message"]), str(said.get("hint", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return RingsideError(f"The running Ringside refused: {error}.", "Open its page to see more.")
