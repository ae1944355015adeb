"""The engine's end of one worker process: start it, talk to it, notice its death, and see that it is gone."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
from pathlib import Path

import psutil

from app.worker import run_worker
from app.worker_messages import Command, Report, Shutdown
from backends.errors import WorkerDiedError
from backends.requests import LoadRequest

_EXIT_S = 5.0


class WorkerProcess:
    """One spawned process that loads `request`'s model as soon as it is up. `send` and `kill` may come from any thread.

    Args:
        log_path: where everything the process prints goes; None leaves it on this process's streams.
    """

    def __init__(self, request: LoadRequest, log_path: Path | None) -> None:
        context = multiprocessing.get_context("spawn")  # a forked copy would hold this process's sockets and locks
        self._connection, workers_end = context.Pipe()
        self._send_lock = threading.Lock()
        self._log_path = log_path
        log = None if log_path is None else str(log_path)
        self._process = context.Process(
            target=run_worker, args=(workers_end, request, log), name="ringside-worker", daemon=True
        )
        self._process.start()
        workers_end.close()  # so that the pipe ends when the worker does

    @property
    def pid(self) -> int | None:
        """Process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process.is_alive()

    def send(self, command: Command) -> None:
        """Send a command; a dead worker is noticed by `receive`, not here."""
        with self._send_lock:
            try:
                self._connection.send(command)
            except OSError:
                return

    def receive(self, timeout_s: float) -> Report | None:
        """Return the next report, None if none comes in time.

        Raises:
            WorkerDiedError: the process is gone and everything it had sent has been read.
        """
        try:
            if not self._connection.poll(timeout_s):
                return None
            report: Report = self._connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            raise self._death() from None
        return report

    def process_bytes(self) -> int:
        """Return resident memory of the process now, 0 if it is gone."""
        try:
            rss: int = psutil.Process(self._process.pid).memory_info().rss
        except psutil.Error:
            return 0
        return rss

    def stop(self) -> None:
        """End the process, politely first; returns when it is gone and its memory with it."""
        self.send(Shutdown())
        self._process.join(_EXIT_S)
        self.kill()
        self._connection.close()

    def kill(self) -> None:
        """End the process at once and wait until it is gone."""
        self._process.kill()
        self._process.join(_EXIT_S)

    def _death(self) -> WorkerDiedError:
        self._process.join(_EXIT_S)
        hint = "The text so far is kept; the next message loads the model again."
        if self._log_path is not None:
            hint += f" Its last words are in {self._log_path}."
        return WorkerDiedError(f"The model's process {_how_it_ended(self._process.exitcode)}.", hint)


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "does not answer any more"
    if exit_code >= 0:
        return f"ended unexpectedly with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        return f"was ended by signal {-exit_code}"
    if name == "SIGKILL":
        return "was killed (SIGKILL), as the system does when memory runs out"
    return f"{'aborted' if name == 'SIGABRT' else 'crashed'} ({name})"
