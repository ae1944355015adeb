"""Runs as the command line follows them: in this process, or in the instance that is already running."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from app.run_data import view_from
from app.runs import Run, RunView
from backends.errors import RingsideError

_WAIT_S = 10.0
_ANSWER_S = 30.0
_TICK_S = 0.25


class FollowedRun(Protocol):
    """A run that someone reads to its end."""

    def first_view(self) -> RunView:
        """Return the state and the text from the start."""

    def next_view(self, view: RunView) -> RunView:
        """Return the state and the text behind `view`, soon, or once something changes."""

    def cancel(self) -> None:
        """Stop it; twice is fine."""


class LocalRun:
    """A run of this process.

    Args:
        cancel: stops it.
    """

    def __init__(self, run: Run, cancel: Callable[[], None]) -> None:
        self._run = run
        self._cancel = cancel

    def first_view(self) -> RunView:
        """See `FollowedRun`."""
        return self._run.view()

    def next_view(self, view: RunView) -> RunView:
        """See `FollowedRun`."""
        self._run.wait_for_change(view.version, _TICK_S)
        return self._run.view(view.offset + len(view.text))

    def cancel(self) -> None:
        """See `FollowedRun`."""
        self._cancel()


class RemoteRun:
    """A run of the running instance.

    Args:
        instance: that instance.
    """

    def __init__(self, instance: RunningInstance, run_id: str) -> None:
        self._instance = instance
        self._path = f"runs/{run_id}"

    def first_view(self) -> RunView:
        """See `FollowedRun`."""
        return view_from(self._instance.ask(self._path))

    def next_view(self, view: RunView) -> RunView:
        """See `FollowedRun`."""
        offset = view.offset + len(view.text)
        query = f"?offset={offset}&version={view.version}&wait_s={_WAIT_S}"
        return view_from(self._instance.ask(self._path + query))

    def cancel(self) -> None:
        """See `FollowedRun`."""
        self._instance.ask(f"{self._path}/stop", {})


class RunningInstance:
    """The instance at a loopback address, asked through its routes.

    Args:
        url: with a slash at the end.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by way of a proxy

    def begin(self, prompt: str, settings: Mapping[str, Any]) -> RemoteRun:
        """Have a reply written in a chat of its own. Raises RingsideError."""
        return RemoteRun(self, self.ask("runs", {"prompt": prompt, "settings": dict(settings)})["run"])

    def newest_run(self) -> RemoteRun | None:
        """Return the run being written, or else the next in the queue; None if there is none."""
        runs = self.ask("runs")["runs"]
        return RemoteRun(self, runs[0]["run"]) if runs else None

    def answers(self, timeout_s: float) -> bool:
        """Tell whether Ringside is there."""
        try:
            with self._opener.open(f"{self.url}app/health", timeout=timeout_s) as response:
                return bool(json.load(response).get("app") == "ringside")
        except (urllib.error.URLError, OSError, ValueError):
            return False

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of a route under /app/; a body makes it a POST.

        Raises:
            RingsideError: what the instance said is wrong, or that it is gone.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}app/{path}", data, headers)
        try:
            with self._opener.open(request, timeout=_ANSWER_S) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise RingsideError(
                f"The running Ringside at {self.url} does not answer any more ({error}).",
                "What it had written is kept; start it again to go on.",
            ) from error
        return answer


def _refusal(error: urllib.error.HTTPError) -> RingsideError:
    try:
        said = json.load(error)
        return RingsideError(str(said["message"]), str(said.get("hint", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return RingsideError(f"The running Ringside refused: {error}.", "Open its page to see more.")
