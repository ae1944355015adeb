"""llama-cpp-python's own server as a contestant: started as its manual says, spoken to over HTTP on loopback.

Its API takes text, not ids, so a prompt is spelt out and read again by it, which may move its end by a token.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import IO, Any

_START_S = 120.0
_HOST = "127.0.0.1"


class PeerServer:
    """A running `python -m llama_cpp.server` with one model.

    Raises:
        RuntimeError: it ended, or did not answer in two minutes.
    """

    def __init__(self, gguf: str, context_tokens: int, num_threads: int) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 `close` does
        self._port = _free_port()
        options = {
            "model": gguf,
            "n_ctx": context_tokens,
            "n_threads": num_threads,
            "n_threads_batch": num_threads,
            "host": _HOST,
            "port": self._port,
        }
        given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "llama_cpp.server", *given],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for whoever measures; `close` ends it
        )
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback has no proxy
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, prompt: str, num_tokens: int) -> Iterator[None]:
        """Yield for each token as it arrives."""
        body = {"prompt": prompt, "max_tokens": num_tokens, "temperature": 0.0, "stream": True}
        with self._ask("/v1/completions", json.dumps(body).encode()) as answer:
            for line in answer:
                data = line.removeprefix(b"data: ").strip()
                if not line.startswith(b"data: ") or data == b"[DONE]":
                    continue
                choice = json.loads(data)["choices"][0]
                if choice["finish_reason"] is None or choice["text"]:
                    yield

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(f"http://{_HOST}:{self._port}{path}", body)
        request.add_header("Content-Type", "application/json")
        return self._opener.open(request)

    def _wait(self) -> None:
        give_up_at_s = time.monotonic() + _START_S
        while time.monotonic() < give_up_at_s:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended: {self._last_words()}")
            try:
                self._ask("/v1/models").close()
                return
            except urllib.error.URLError:
                time.sleep(0.1)
        raise RuntimeError(f"the server did not answer within {_START_S:.0f} s")

    def _last_words(self) -> str:
        self._log.seek(0)
        return last_words(self._log.read().decode("utf-8", "replace")) or f"exit code {self._process.returncode}"


def last_words(log: str) -> str:
    """Return why a process ended: its last exception where it wrote one, libraries being chatty on their way out."""
    lines = log.strip().splitlines()
    raised = [words[1] for line in lines if (words := re.match(r"(?:\w+\.)*_?(\w*(?:Error|Exception)\b.*)", line))]
    return (raised or lines or [""])[-1].partition(" for an array")[0]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_HOST, 0))
        return int(found.getsockname()[1])
