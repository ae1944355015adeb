"""What the page costs: measured against the bare loop on the echo backend, with a real server and a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.proof.page_cost import PageCost, sentences

pytestmark = pytest.mark.browser


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Chromium puts a socket under TMPDIR, whose path may have some hundred characters; pytest's own is longer."""
    with tempfile.TemporaryDirectory(prefix="cost-") as folder:
        yield Path(folder)


def test_bare_loop_and_page_are_measured_and_leave_no_process_behind(short_folder: Path) -> None:
    output = short_folder / "cost.json"
    command = [sys.executable, "-m", "app.proof.page_cost", "--backend", "echo", "--tokens", "100", "--rounds", "1"]
    environment = os.environ | {"TMPDIR": str(short_folder)}  # the page's home is made there
    measured = subprocess.run(
        [*command, "-o", str(output)], env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    assert measured.returncode == 0, measured.stderr
    (kept,) = json.loads(output.read_text("utf-8"))
    cost = PageCost(**kept)
    assert (cost.backend, cost.num_tokens) == ("echo", 100)
    assert cost.bare_rate > 0
    assert cost.page_rate > 0
    assert cost.server_cpu_s > 0
    assert cost.worker_cpu_s > 0
    assert cost.browser_cpu_s > 0
    assert sentences([kept])[0] in " ".join(measured.stdout.split())
    assert [path.name for path in short_folder.iterdir() if path.name.startswith("ringside-bench-")] == []
    assert not [each for each in psutil.process_iter() if str(short_folder) in _home(each)]


def _home(process: psutil.Process) -> str:
    try:
        return process.environ().get("TMPDIR", "")
    except psutil.Error:  # ended meanwhile, or another user's
        return ""
