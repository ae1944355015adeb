from __future__ import annotations

import subprocess
import sys


def test_two_rounds_lose_nothing() -> None:
    """A glance at what `make faults` does two hundred times."""
    command = [sys.executable, "-m", "tests.faults.run", "--rounds", "2", "--without-page", "--seed", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2  rounds, nothing lost" in done.stdout
