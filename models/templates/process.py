"""Rendering of chat templates in processes of their own, which are kept warm, watched, and ended when they overdo it.

The application and each model's process use this alike: no template ever runs in either.
"""

from __future__ import annotations

import atexit
import marshal
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil

from models.templates.child import read_frame, unpacked_answer, write_frame

_WATCH_S = 0.05
_MAX_IDLE = 2
_MAX_PROCESSES = 4
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from models.templates.child import serve; serve()"


class TemplateFailure(Exception):  # noqa: N818  a failure of the template, not of ours
    """A template that wrote nothing, and why.

    Attributes:
        reason: the end of a sentence about the template.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BrokenTemplate(TemplateFailure):
    """It is not a template.

    Attributes:
        line: where it is wrong.
    """

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


class TemplateRefusal(TemplateFailure):
    """The template itself refused what it was given (`raise_exception`)."""


class TemplateOverLimit(TemplateFailure):
    """It ran for too long, wrote too much or needed too much memory."""


class TemplateTooSlow(TemplateOverLimit):
    """No answer came in time, which on a busy machine need not be the template's fault."""


@dataclass(frozen=True)
class Limits:
    """Most that one rendering may take.

    Attributes:
        cpu_s: of processor time.
        wall_s: of time altogether.
        memory_bytes: of the whole process, some 20 MB of which are its own.
    """

    cpu_s: float = 5.0
    wall_s: float = 30.0
    memory_bytes: int = 512_000_000

    @classmethod
    def for_chat(cls, num_characters: int) -> Limits:
        """Return limits with room for a chat of any length: a few thousand times what a template needs."""
        millions = num_characters / 1e6
        return cls(5.0 + millions, 30.0 + 2 * millions, 512_000_000 + 64 * num_characters)


class TemplateProcesses:
    """Warm processes, a few at once; any thread may render.

    They end with `close`, and by themselves when this process does.
    """

    def __init__(self) -> None:
        self._idle: list[_Process] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(_MAX_PROCESSES)

    def render(self, source: str, max_characters: int, variables: Mapping[str, Any], limits: Limits) -> str:
        """Return the text a template writes.

        Args:
            source: Jinja text.
            max_characters: of the longest text it may make.
            variables: what the template sees; values that JSON has.
            limits: what it may take.

        Raises:
            TemplateFailure: one of its kinds.
        """
        request = {
            "source": source,
            "max_characters": max_characters,
            "variables": variables,
            "cpu_s": limits.cpu_s,
            "memory_bytes": limits.memory_bytes,
        }
        with self._process() as process:
            answer = process.ask(request, limits)
        if isinstance(text := answer.get("text"), str):
            return text
        raise _failure(answer, limits)

    def close(self) -> None:
        """End the processes that wait for work."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    @contextmanager
    def _process(self) -> Iterator[_Process]:
        """Lend a process; it is kept unless it was left in the middle of something."""
        with self._free:
            process = self._waiting() or _Process()
            try:
                yield process
            finally:
                with self._lock:
                    is_kept = process.is_ready and len(self._idle) < _MAX_IDLE
                    if is_kept:
                        self._idle.append(process)
                if not is_kept:
                    process.end()

    def _waiting(self) -> _Process | None:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_ready:
                    return process
                process.end()
        return None


class _Process:
    """One child. A thread reads what it says, since a pipe cannot be waited on for a time everywhere."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CODE, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is not meant for it
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        self._watched = psutil.Process(self._child.pid)
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._is_asked = False
        threading.Thread(target=self._read, name="template-answers", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_ready(self) -> bool:
        """Whether it waits for a request."""
        return not self._is_asked and self._child.poll() is None

    def ask(self, request: dict[str, Any], limits: Limits) -> dict[str, Any]:
        """Return the answer to a request. Raises TemplateOverLimit; the process is to be ended then."""
        assert self._child.stdin is not None
        self._is_asked = True
        started_s, cpu_before_s = time.monotonic(), self._cpu_s()
        try:
            write_frame(self._child.stdin, marshal.dumps(request))
        except OSError:
            raise self._death(limits) from None
        while True:
            try:
                answer = self._answers.get(timeout=_WATCH_S)
            except queue.Empty:
                self._check(limits, cpu_before_s, started_s)
                continue
            if answer is None:
                raise self._death(limits)
            self._is_asked = answer.get("kind") == "memory"  # it ends by itself then
            return answer

    def end(self) -> None:
        """End the process at once; returns when it is gone."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with suppress(OSError):  # half a request was still to be written
                pipe.close()

    def _read(self) -> None:
        assert self._child.stdout is not None
        with suppress(OSError, ValueError):  # closed on this side
            while (data := read_frame(self._child.stdout)) is not None:
                self._answers.put(unpacked_answer(data))
        self._answers.put(None)

    def _cpu_s(self) -> float:
        try:
            times = self._watched.cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def _check(self, limits: Limits, cpu_before_s: float, started_s: float) -> None:
        try:
            resident_bytes = self._watched.memory_info().rss
        except psutil.Error:  # it is gone; its end of the pipe says so
            return
        if resident_bytes > limits.memory_bytes:
            raise _too_much_memory(limits)
        if self._cpu_s() - cpu_before_s > limits.cpu_s:
            raise _too_long(limits)
        if time.monotonic() - started_s > limits.wall_s:
            raise TemplateTooSlow(f"it takes longer than {limits.wall_s:.0f} seconds")

    def _death(self, limits: Limits) -> TemplateOverLimit:
        code = self._child.wait()
        if sys.platform != "win32":
            import signal

            if code == -signal.SIGXCPU:
                return _too_long(limits)
            if code == -signal.SIGKILL:  # as the system does when memory runs out
                return _too_much_memory(limits)
        return TemplateOverLimit(f"the process that renders it ended with code {code}")


def _too_long(limits: Limits) -> TemplateOverLimit:
    return TemplateOverLimit(f"it takes longer than {limits.cpu_s:.0f} seconds")


def _too_much_memory(limits: Limits) -> TemplateOverLimit:
    return TemplateOverLimit(f"it needs more than {limits.memory_bytes / 1e6:,.0f} MB of memory")


def _failure(answer: Mapping[str, Any], limits: Limits) -> TemplateFailure:
    reason = str(answer.get("reason"))
    match answer.get("kind"):
        case "broken":
            return BrokenTemplate(reason, int(answer.get("line") or 0))
        case "refused":
            return TemplateRefusal(reason)
        case "limit":
            return TemplateOverLimit(reason)
        case "memory":
            return _too_much_memory(limits)
        case _:
            return TemplateFailure(reason)


processes = TemplateProcesses()
"""Those of this process; none is started before the first template is rendered."""

atexit.register(processes.close)
