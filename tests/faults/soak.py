"""Write a very long reply with echo through worker, store and page, and watch the memory of every process.

    python -m tests.faults.soak --tokens 1000000

From a tenth of the tokens on, no process may grow by more than two per cent, and at the end nothing may be missing. A
tab looks on all the while: it reads the event stream that the page reads. The rate is such that the charts, which have
a fixed number of points, are full before the first measurement.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path

import psutil

from app.running import RemoteRun
from backends import echo_text
from backends.errors import RingsideError
from tests.faults.ringside import FailedCheckError, Ringside

MOST_GROWTH = 0.02
_SAMPLES = 20


def main() -> int:
    """Run the soak; return the exit code."""
    parser = argparse.ArgumentParser(description="Watch memory while a very long reply is written.")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--rate", default="1000", help="tokens a second")
    parser.add_argument("--without-page", action="store_true", help="leave Gradio out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringside-soak-") as work:
        home = Path(work) / "home"
        home.mkdir()
        ringside = Ringside(home, Path(work), with_page=not asked.without_page)
        try:
            ringside.start()
            return _soak(ringside, asked.tokens, asked.rate)
        finally:
            ringside.close()


def _soak(ringside: Ringside, num_tokens: int, rate: str) -> int:
    settings = {"backend": "echo", "options": {"rate": rate}, "max_new_tokens": num_tokens, "on_loop": "ignore"}
    started = ringside.ask("runs", {"prompt": "Write.", "settings": settings})
    threading.Thread(target=_look_on, args=(ringside, started["chat"]), daemon=True).start()
    samples = _watched(ringside, started["run"], num_tokens)
    text = ringside.text(started["message"])
    message = ringside.ask(f"chats/{started['chat']}")["messages"][-1]
    written = "".join(islice(echo_text.document(int(message["seed"]), 0), num_tokens))
    if text != written:
        raise FailedCheckError(f"{len(written):,} characters were written and {len(text):,} are there")
    ringside.check_store()
    worst = max(_growth(samples, place) for place in (1, 2))
    print(f"{len(text):,} characters, none missing; largest growth {worst:.2%} of {MOST_GROWTH:.0%}")
    return 0 if worst <= MOST_GROWTH else 1


def _watched(ringside: Ringside, run_id: str, num_tokens: int) -> list[tuple[int, int, int]]:
    """Return (tokens, bytes of the application, bytes of the worker), from a tenth of the tokens to the last."""
    run = RemoteRun(ringside.instance, run_id)
    offset = 0
    samples: list[tuple[int, int, int]] = []
    while True:
        view = run.view_from(offset)
        offset = view.num_chars
        if view.status == "finished":
            return samples
        due = num_tokens // 10 + len(samples) * (num_tokens * 9 // 10) // _SAMPLES
        if view.num_tokens >= due and (workers := ringside.processes()):
            samples.append((view.num_tokens, ringside.process_bytes(), workers[0].memory_info().rss))
            tokens, app, worker = samples[-1]
            print(f"{tokens:>12,} tokens  application {app / 1e6:7.1f} MB  worker {worker / 1e6:6.1f} MB", flush=True)
        time.sleep(0.05)


def _growth(samples: list[tuple[int, int, int]], place: int) -> float:
    if len(samples) < _SAMPLES // 2:
        raise FailedCheckError(f"only {len(samples)} samples were taken; ask for more tokens or a lower rate")
    sizes = [sample[place] for sample in samples]
    return max(sizes) / sizes[0] - 1


def _look_on(ringside: Ringside, chat_id: int) -> None:
    """Read the event stream of a tab for as long as it lasts."""
    try:
        with ringside.instance.opened(f"stream?chat={chat_id}") as stream:
            while stream.read(65_536):
                pass
    except (RingsideError, psutil.Error):
        return


if __name__ == "__main__":
    sys.exit(main())
