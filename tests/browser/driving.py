"""The application as a process, and how Chromium is started: shared by the browser tests and the benchmark."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from app.proof.chromium import SWITCHES

_CHROMIUM_ARGUMENTS = [
    *SWITCHES,
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
]


@dataclass
class Ringside:
    """A running `ringside chat` with a home folder of its own."""

    home: Path
    arguments: tuple[str, ...]
    url: str = ""
    process: subprocess.Popen[str] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.home / "server.log"

    def start(self) -> None:
        """Start, wait for the line that names the address, and until the page is there."""
        port = ["--port", self.url.rstrip("/").rpartition(":")[2]] if self.url else []
        command = [sys.executable, "-m", "app", "chat", "--no-browser", "--json", *port, *self.arguments]
        environment = {**os.environ, "RINGSIDE_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it did not start:\n{self.log.read_text()}"
        self.url = json.loads(line)["url"]
        urllib.request.urlopen(self.url).close()  # the first page waits until all it is made of is imported

    def forget_chats(self) -> None:
        """Stop what is written and delete every chat: as new, for the next who comes."""
        with urllib.request.urlopen(f"{self.url}app/chats") as answer:
            chats = json.load(answer)["chats"]
        for chat in chats:
            request = urllib.request.Request(f"{self.url}app/chats/{chat['id']}", method="DELETE")
            urllib.request.urlopen(request).close()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


SHOWN_TEXT = """
reply => {
  const pieces = [];
  const walker = document.createTreeWalker(reply, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { currentNode } = walker;
    if (!currentNode.parentElement.closest('button, .formula')) pieces.push(currentNode.data);
  }
  return pieces.join(' ');
}
"""
"""Script that returns the text of a reply's element, off the screen too, without buttons and formulas."""


def words(text: str) -> list[str]:
    """Return the words of a text, which Markdown leaves in place and in order; formulas are left out, a cut one too."""
    return re.findall(r"[^\W\d_]+", re.sub(r"(\$\$?)[^$]+\1|\$\$[^$]*$", " ", text))


def launch_arguments() -> list[str]:
    """Return switches for a browser without a sandbox, a GPU or business of its own."""
    return list(_CHROMIUM_ARGUMENTS)
