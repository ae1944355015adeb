"""Write a very long reply with echo through worker, store and page, and watch the memory of every process.

    python -m tests.faults.soak --tokens 1000000 --page

From a tenth of the tokens on, no process may grow by more than two per cent, the end included, and nothing may be
missing. With `--page` Chromium shows the reply all the while; without, a reader takes the event stream that the page
takes. The application and its worker may never be larger than that. Chromium keeps garbage as long as it likes, so of
its processes the median of the last tenth of the tokens is compared with that of the second tenth.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from statistics import median

import psutil

from app.running import RemoteRun
from backends import echo_text
from backends.errors import RingsideError
from tests.browser.driving import words
from tests.faults.browser import KINDS, Tab, browser_bytes, open_tab
from tests.faults.ringside import FailedCheckError, Ringside, wait_until

MOST_GROWTH = 0.02
_SAMPLES = 45
_END_CHARS = 300
_TENTH = _SAMPLES // 9  # measuring begins behind the first


def main() -> int:
    """Run the soak; return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves no process and no disk behind
    parser = argparse.ArgumentParser(description="Watch memory while a very long reply is written.")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--rate", default="1000", help="tokens a second")
    looking = parser.add_mutually_exclusive_group()
    looking.add_argument("--page", action="store_true", help="show the reply in Chromium all the while")
    looking.add_argument("--without-page", action="store_true", help="leave Gradio out")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ringside-soak-") as work,
        open_tab() if asked.page else nullcontext() as tab,
    ):
        home = Path(work) / "home"
        home.mkdir()
        ringside = Ringside(home, Path(work), with_page=not asked.without_page)
        try:
            ringside.start()
            return _Soak(ringside, asked.tokens, tab).run(asked.rate)
        finally:
            ringside.close()


class _Soak:
    """One long reply.

    Args:
        tab: looks on; None for a reader of the event stream.
    """

    def __init__(self, ringside: Ringside, num_tokens: int, tab: Tab | None) -> None:
        self._ringside = ringside
        self._num_tokens = num_tokens
        self._tab = tab
        self._sizes: defaultdict[str, list[int]] = defaultdict(list)

    def run(self, rate: str) -> int:
        """Write it, compare it, print what each process took; return the exit code."""
        options = {"rate": rate}
        settings = {"backend": "echo", "options": options, "max_new_tokens": self._num_tokens, "on_loop": "ignore"}
        started = self._ringside.ask("runs", {"prompt": "Write.", "settings": settings})
        with self._looking_on(started["chat"]):
            self._watch(started["run"])
            self._compare(started)
        worst = max(self._growth(name) for name in self._sizes)
        print(f"largest growth {worst:.2%} of {MOST_GROWTH:.0%}")
        return 0 if worst <= MOST_GROWTH else 1

    @contextmanager
    def _looking_on(self, chat_id: int) -> Iterator[None]:
        if self._tab is None:
            threading.Thread(target=_look_on, args=(self._ringside, chat_id), daemon=True).start()
            yield
            return
        self._tab.open(self._ringside.instance.url, chat_id)
        yield
        if self._tab.complaints:
            raise FailedCheckError(f"the page complained: {self._tab.complaints[:3]}")

    def _watch(self, run_id: str) -> None:
        """Measure from a tenth of the tokens to the last, and once more after the end."""
        run = RemoteRun(self._ringside.instance, run_id)
        offset = num_samples = 0
        while True:
            view = run.view_from(offset)
            offset = view.num_chars
            if view.status == "finished":
                time.sleep(2)  # the text is brought together in the store
                self._measure(view.num_tokens)
                return
            if view.num_tokens >= self._num_tokens // 10 + num_samples * (self._num_tokens * 9 // 10) // _SAMPLES:
                self._measure(view.num_tokens)
                num_samples += 1
            time.sleep(0.05)

    def _measure(self, num_tokens: int) -> None:
        workers = self._ringside.processes()
        sizes = {"application": self._ringside.process_bytes(), "worker": workers[0].memory_info().rss}
        if self._tab is not None:
            sizes |= browser_bytes()
        for name, size_bytes in sizes.items():
            self._sizes[name].append(size_bytes)
        shown = "  ".join(f"{name} {size_bytes / 1e6:7.1f} MB" for name, size_bytes in sizes.items())
        print(f"{num_tokens:>12,} tokens  {shown}", flush=True)

    def _compare(self, started: dict[str, int]) -> None:
        text = self._ringside.text(started["message"])
        message = self._ringside.ask(f"chats/{started['chat']}")["messages"][-1]
        written = "".join(islice(echo_text.document(int(message["seed"]), 0), self._num_tokens))
        if text != written:
            raise FailedCheckError(f"{len(written):,} characters were written and {len(text):,} are there")
        self._ringside.check_store()
        if self._tab is not None:
            end = words(text[-_END_CHARS:])[1:]
            wait_until(lambda: self._shown_words()[-len(end) :] == end, "the page shows the end")
        print(f"{len(text):,} characters, none missing")

    def _shown_words(self) -> list[str]:
        return words(self._tab.shown_text()) if self._tab is not None else []

    def _growth(self, name: str) -> float:
        sizes = self._sizes[name]
        if len(sizes) < _SAMPLES // 2:
            raise FailedCheckError(f"only {len(sizes)} samples were taken; ask for more tokens or a lower rate")
        if name in KINDS:
            before, after, when = median(sizes[:_TENTH]), median(sizes[-_TENTH:]), "in the last tenth"
        else:
            before, after, when = sizes[0], max(sizes), "at most"
        growth = after / before - 1
        print(f"{name}: {before / 1e6:.1f} MB at first, {after / 1e6:.1f} MB {when}: {growth:+.2%}")
        return growth


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
