"""Measurements behind the page: one at a time in a thread, seen while it runs, stopped without loss, kept in files.

What is measured and how is the work's own affair (`app.proof.work`), the same code the commands run. The chat's engine
is held meanwhile: a model beside the one being measured would take the memory and the time that are to be told.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from app.engine import Engine
from app.proof.report import Figure, Report, Table, to_html
from backends.errors import BadRequestError, RingsideError

Kind = Literal["compare", "doctor", "experiment"]
Status = Literal["running", "finished", "stopped", "failed"]

HELD_FOR = "A measurement is running; this goes on when it is over. It can be stopped on the page Compare or Doctor."
_LOADED = (
    "A chat model is in memory and would disturb the measurement.",
    "Unload it first, or start with it unloaded; the next message loads it again.",
)
_REPORT_PERIOD_S = 1.0
_REPORT_COST_SHARE = 0.05  # of the time: making reports takes a core from what is being measured
_KEEP_PERIOD_S = 10.0
_NAME = re.compile(r"\d{8}-\d{6}-(compare|doctor|experiment)")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """What a work is doing now; `total` 0 where unknown."""

    text: str
    done: int = 0
    total: int = 0


class Work(Protocol):
    """Something to measure, from the first step to the report."""

    @property
    def title(self) -> str: ...

    def steps(self) -> Generator[Stage, None, None]:
        """Measure, yielding where it is; closing it ends every process it started.

        Raises:
            RingsideError: as the measurement does.
        """
        ...

    def report(self, stopped: bool) -> Report:
        """Return what was found so far."""
        ...

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the answers so far, where the work gives any."""
        ...


@dataclass(frozen=True)
class Seen:
    """A measurement at one moment.

    Attributes:
        version: grows with every change.
        report: None before the first.
        error, hint: of one that failed.
    """

    name: str
    kind: Kind
    title: str
    started_at_s: float
    status: Status = "running"
    stage: Stage = Stage("Starting")
    report: Report | None = None
    verdicts: tuple[dict[str, Any], ...] = ()
    error: str = ""
    hint: str = ""
    version: int = 0


class Measurements:
    """The measurement that runs, and those kept in a folder, newest first.

    Args:
        folder: made when something is kept.
        clock: seconds since the epoch, for names and dates.
    """

    def __init__(self, engine: Engine, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: Seen | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self, kind: Kind, work: Work, unload: bool = False) -> Seen:
        """Begin to measure; returns at once, after the chat's model is gone.

        Args:
            unload: take the chat's model out of memory first if one is there.

        Raises:
            BadRequestError: another measurement runs, the chat writes or loads, or its model is loaded and stays.
        """
        with self._lock:
            if self.running() is not None:
                raise BadRequestError("A measurement is running already.", "Stop it, or wait for its end.")
            if self._engine.status().state == "ready" and not unload:
                raise BadRequestError(*_LOADED)
            self._engine.hold(HELD_FOR)
            self._engine.unload()
            started_at_s = self._clock()
            name = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(started_at_s))}-{kind}"
            self._seen = seen = Seen(name, kind, work.title, started_at_s)
            self._stopping = threading.Event()
            self._thread = threading.Thread(target=self._measure, args=(work, self._stopping), name="measure")
            self._thread.start()
        return seen

    def running(self) -> str | None:
        """Return the name of the measurement that runs."""
        seen = self._seen
        return seen.name if seen is not None and seen.status == "running" else None

    def stop(self) -> None:
        """Ask what runs to end; what it measured stays. Twice is fine, nothing running is fine."""
        self._stopping.set()

    def seen(self, name: str) -> Seen:
        """Return a measurement, running or kept. Raises BadRequestError if there is none by that name."""
        seen = self._seen
        if seen is not None and seen.name == name:
            return seen
        return _read(self._path(name))

    def kept(self) -> list[Seen]:
        """Return the measurements in the folder, newest first, their figures left out; damaged files too are left."""
        found = []
        for path in sorted(self._folder.glob("*.json"), reverse=True):
            try:
                found.append(replace(_read(path), report=None, verdicts=()))
            except BadRequestError:
                continue
        return found

    def html(self, name: str) -> str:
        """Return the report as one self-contained page."""
        return to_html(self._report(name))

    def results(self, name: str) -> str:
        """Return everything measured as JSON."""
        return json.dumps(self._report(name).results, indent=1) + "\n"

    def delete(self, name: str) -> None:
        """Delete a kept measurement; one that runs is stopped first by its own button. Gone already is fine."""
        if name == self.running():
            raise BadRequestError("This measurement is running.", "Stop it first.")
        self._path(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Stop and keep what runs. Twice is fine."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    # The measuring thread

    def _measure(self, work: Work, stopping: threading.Event) -> None:
        status: Status = "failed"
        message, hint = "The measurement failed.", "The terminal has the details; please report this."
        try:
            self._follow(work, stopping)
            status, message, hint = "stopped" if stopping.is_set() else "finished", "", ""
        except RingsideError as error:
            message, hint = error.message, error.hint
        finally:
            self._end(work, status, message, hint)

    def _follow(self, work: Work, stopping: threading.Event) -> None:
        report_due_s, keep_due_s, num_verdicts = 0.0, time.monotonic() + _KEEP_PERIOD_S, -1
        with closing(work.steps()) as steps:
            for stage in steps:
                if stopping.is_set():
                    return
                now_s, verdicts = time.monotonic(), work.verdicts()
                if now_s < report_due_s and len(verdicts) == num_verdicts:
                    continue
                self._change(stage=stage, report=work.report(stopped=False), verdicts=tuple(verdicts))
                cost_s = time.monotonic() - now_s
                report_due_s, num_verdicts = now_s + max(_REPORT_PERIOD_S, cost_s / _REPORT_COST_SHARE), len(verdicts)
                if now_s >= keep_due_s:
                    self._keep()
                    keep_due_s = now_s + _KEEP_PERIOD_S

    def _end(self, work: Work, status: Status, error: str, hint: str) -> None:
        try:
            report = work.report(stopped=status == "stopped")
            self._change(report=report, verdicts=tuple(work.verdicts()))
        finally:
            self._engine.release()
            self._change(status=status, stage=Stage(""), error=error, hint=hint)
            self._keep()

    def _change(self, **changes: Any) -> None:
        assert self._seen is not None
        self._seen = replace(self._seen, version=self._seen.version + 1, **changes)

    def _keep(self) -> None:
        """Write the file whole or not at all; a full disk costs the copy, not the measurement."""
        assert self._seen is not None
        path = self._path(self._seen.name)
        half = path.with_suffix(".part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            half.write_text(json.dumps(asdict(self._seen)), encoding="utf-8")
            half.replace(path)
        except OSError as error:
            _log.warning("The measurement could not be kept in %s: %s.", path, error)

    def _report(self, name: str) -> Report:
        report = self.seen(name).report
        if report is None:
            raise BadRequestError("Nothing has been measured yet.", "Wait a moment.")
        return report

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise BadRequestError(f"There is no measurement {name!r}.", "Choose one from the list.")
        return self._folder / f"{name}.json"


def _read(path: Path) -> Seen:
    """Read a kept measurement; one that was running when the application died counts as stopped."""
    try:
        content = json.loads(path.read_text("utf-8"))
        stage, report = Stage(**content.pop("stage")), content.pop("report")
        seen = Seen(stage=stage, report=None if report is None else _report_from(report), **content)
    except FileNotFoundError:
        raise BadRequestError("This measurement is gone.", "Choose one from the list.") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadRequestError(f"{path.name} cannot be read: {error}.", "Delete it, or measure again.") from error
    return replace(seen, status="stopped", stage=Stage("")) if seen.status == "running" else seen


def _report_from(content: dict[str, Any]) -> Report:
    figures = [Figure(**figure) for figure in content.pop("figures")]
    tables = [Table(**table) for table in content.pop("tables")]
    return Report(figures=figures, tables=tables, **content)
