"""A Ringside of its own to be treated badly: a real process on a folder of its own, asked through its routes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from app.running_instance import RunningInstance
from backends.errors import RingsideError

PATIENCE_S = 600.0
"""Importing Gradio or loading a model takes seconds of a core, and a busy machine gives little of one."""

_FAREWELL_S = 20.0

_ROUTES_ONLY = """
import uvicorn
from app.instance import Instance
from app.native_memory import give_freed_memory_back
from app.server import address, bind, build_routes
from app.service import Service
from app.settings import read_settings
if __name__ == "__main__":
    give_freed_memory_back()
    settings = read_settings()
    instance = Instance(settings.data_folder)
    assert instance.claim()
    service = Service.open(settings)
    bound = bind(0)
    print('{"url": "%s"}' % address(bound), flush=True)
    config = uvicorn.Config(build_routes(service), log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[bound])
"""


class FailedCheckError(AssertionError):
    """Something was lost or does not work."""


class Ringside:
    """The application as a process.

    Args:
        home: its data folder.
        work: folder for its script and log, on a disk that never fills.
        with_page: run `ringside chat` as people do; otherwise everything but the page, which starts faster.
    """

    def __init__(self, home: Path, work: Path, with_page: bool) -> None:
        self._home = home
        self._log = (work / "ringside.log").open("ab")
        script = work / "routes_only.py"
        script.write_text(_ROUTES_ONLY)
        chat = ["-m", "app", "chat", "--no-browser", "--json", "--backend", "echo"]  # which fetches no model
        self._command = [sys.executable, *(chat if with_page else [str(script)])]
        self._process: subprocess.Popen[str] | None = None
        self._instance: RunningInstance | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        environment = {**os.environ, "RINGSIDE_HOME": str(self._home), "PYTHONPATH": str(Path.cwd())}
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise FailedCheckError("the application did not start")
        self._instance = RunningInstance(json.loads(line)["url"])
        wait_until(lambda: self.instance.answers(1.0), "the application answers")

    @property
    def instance(self) -> RunningInstance:
        """What to ask it through."""
        assert self._instance is not None, "start it first"
        return self._instance

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of a route."""
        return self.instance.ask(path, body)

    def text(self, message_id: int) -> str:
        """Return a message's text as the page gets it."""
        with self.instance.opened(f"messages/{message_id}/text") as response:
            return bytes(response.read()).decode("utf-8", "surrogatepass")

    def processes(self) -> list[psutil.Process]:
        """Return the workers."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children(recursive=True)
        return [child for child in children if _is_worker(child)]

    def process_bytes(self) -> int:
        """Return the resident memory of the application, its worker not counted."""
        assert self._process is not None
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def kill_worker(self) -> bool:
        """End the worker with SIGKILL; False if there is none."""
        workers = self.processes()
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        return bool(workers)

    def kill(self) -> float:
        """End the application with SIGKILL and see that its worker goes too; return when (`time.monotonic`)."""
        assert self._process is not None
        workers = self.processes()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        killed_at_s = time.monotonic()
        wait_until(lambda: not any(worker.is_running() and _runs(worker) for worker in workers), "the worker is gone")
        return killed_at_s

    def limit_file_size(self, num_bytes: int | None) -> None:
        """Let no file of the application grow beyond a size; None lifts that."""
        assert self._process is not None
        limit = psutil.RLIM_INFINITY if num_bytes is None else num_bytes
        psutil.Process(self._process.pid).rlimit(psutil.RLIMIT_FSIZE, (limit, psutil.RLIM_INFINITY))

    def close(self) -> None:
        """End it politely."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_FAREWELL_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._log.close()

    # The store, read from outside

    @property
    def database_path(self) -> Path:
        """Where the store is."""
        return self._home / "chats.sqlite"

    def check_store(self) -> None:
        """Raise FailedCheckError unless the database is whole."""
        with closing(sqlite3.connect(self.database_path)) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            raise FailedCheckError(f"integrity_check says {found[:3]}")
        if damaged := list(self._home.glob("chats.damaged-*")):
            raise FailedCheckError(f"a store was set aside: {damaged}")


def wait_until(condition: Any, what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition; errors of an application that is not up count as false. Raises FailedCheckError."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            if condition():
                return
        except RingsideError:
            pass
        if time.monotonic() > deadline_s:
            raise FailedCheckError(f"waited {patience_s:.0f} s in vain until {what}")
        time.sleep(0.05)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.Error:  # it is going
        return False


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
