"""Runs as the command line follows them: in this process, or in the instance that is already running."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from app.run_data import view_from
from app.run_views import RunView
from app.running_instance import RunningInstance
from app.runs import Run

_WAIT_S = 10.0
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
        return self.view_from(0)

    def view_from(self, offset: int) -> RunView:
        """Return the state and the text from a character on, at once."""
        return view_from(self._instance.ask(f"{self._path}?offset={offset}"))

    def next_view(self, view: RunView) -> RunView:
        """See `FollowedRun`."""
        offset = view.offset + len(view.text)
        query = f"?offset={offset}&version={view.version}&wait_s={_WAIT_S}"
        return view_from(self._instance.ask(self._path + query))

    def cancel(self) -> None:
        """See `FollowedRun`."""
        self._instance.ask(f"{self._path}/stop", {})


def begin_run(instance: RunningInstance, prompt: str, settings: Mapping[str, Any]) -> RemoteRun:
    """Have the instance write a reply in a chat of its own. Raises RingsideError."""
    return RemoteRun(instance, instance.ask("runs", {"prompt": prompt, "settings": dict(settings)})["run"])


def current_run(instance: RunningInstance) -> RemoteRun | None:
    """Return the run the instance is writing, or else the next in its queue; None if there is none."""
    runs = instance.ask("runs")["runs"]
    return RemoteRun(instance, runs[0]["run"]) if runs else None
