"""Treat a real Ringside badly, round after round, and check after each that nothing is lost. See `make faults`.

    python -m tests.faults.run
    python -m tests.faults.run --rounds 20 --backend echo --backend llamacpp --model gemma-3-270m

The backends named take turns. A round begins a reply, does something bad to it at a random moment, and then checks:
the text that is kept is what the backend wrote (for echo, recomputed from the seed; otherwise, as a witness saw it) up
to at most one second before a kill of the application, and all of it after anything else; the database passes
integrity_check; the reply is gone on with from exactly there, and the next message works.
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from backends import echo_text
from tests.browser.driving import words
from tests.faults.browser import Tab, open_tab
from tests.faults.ringside import FailedCheckError, Ringside, wait_until
from tests.faults.witness import Witness

MOST_LOST_S = 1.0
_DISK_BYTES = 96 * 2**20
_ECHO = {"backend": "echo", "options": {"rate": "300"}, "max_new_tokens": 500}
_SMALL = {"window": 128, "num_threads": 1, "keep_writing": True}


class FaultRun:
    """Rounds on one Ringside.

    Args:
        settings: of replies, flat; rounds take them in turn.
        tab: where the page is reloaded; None leaves that out.
        disk: its data folder's own small disk; None where that cannot be had, files are limited in size then.
        chance: decides everything.
    """

    def __init__(
        self,
        ringside: Ringside,
        settings: Sequence[dict[str, Any]],
        disk: Path | None,
        chance: random.Random,
        tab: Tab | None = None,
    ) -> None:
        self._ringside = ringside
        self._turns = cycle(settings)
        self._settings = settings[0]
        self._disk = disk
        self._tab = tab
        self._chance = chance
        self.counts: Counter[tuple[str, str]] = Counter()
        self.most_lost_s = 0.0
        self.doing = "beginning a reply"
        self._killed_at_s = 0.0
        self._faults: dict[str, tuple[int, Callable[[dict[str, Any], Witness], bool]]] = {
            "application killed": (3, self._kill_application),
            "worker killed": (3, self._kill_worker),
            "both killed": (1, self._kill_both),
            "stopped, twice": (1, self._stop),
            "followers come and go": (1, self._come_and_go),
            "disk full": (1, self._fill_disk),
        }
        if tab is not None:
            self._faults["page reloaded"] = (1, self._reload_page)

    def round(self) -> str:
        """Do one round; return what was done. Raises FailedCheckError."""
        self._settings = next(self._turns)
        started = self._ringside.ask("runs", {"prompt": "Write.", "settings": self._settings})
        witness = Witness(self._ringside.instance, started["run"])
        self._wait_for_the_moment(started, witness)
        weights = [weight for weight, _ in self._faults.values()]
        (name,) = self._chance.choices(list(self._faults), weights)
        self.doing = name
        keeps_all = self._faults[name][1](started, witness)
        kept = self._check_kept(started, witness, keeps_all)
        self._ringside.check_store()
        self._check_it_goes_on(started, kept)
        self.counts[name, self._settings["backend"]] += 1
        return f"{name} ({self._settings['backend']})"

    def _wait_for_the_moment(self, started: dict[str, Any], witness: Witness) -> None:
        if self._chance.random() < 0.85:  # otherwise it may hit the loading of the model
            wait_until(lambda: witness.text or witness.end, "the reply begins")
        time.sleep(self._chance.uniform(0.0, 1.5))

    # What is done; each returns whether nothing at all may be lost

    def _kill_application(self, started: dict[str, Any], witness: Witness) -> bool:
        self._killed_at_s = self._ringside.kill()
        witness.wait()
        self._ringside.start()
        return False

    def _kill_both(self, started: dict[str, Any], witness: Witness) -> bool:
        self._ringside.kill_worker()
        return self._kill_application(started, witness)

    def _kill_worker(self, started: dict[str, Any], witness: Witness) -> bool:
        wait_until(lambda: self._ringside.kill_worker() or witness.end, "there is a worker to kill")
        witness.wait()
        return True

    def _stop(self, started: dict[str, Any], witness: Witness) -> bool:
        for _ in range(2):
            self._ringside.ask(f"runs/{started['run']}/stop", {})
        witness.wait()
        return True

    def _come_and_go(self, started: dict[str, Any], witness: Witness) -> bool:
        """Look at the chat as tabs do, from anywhere, and leave in the middle of an answer."""
        for _ in range(5):
            others = Witness(self._ringside.instance, started["run"])
            with self._ringside.instance.opened(f"stream?chat={started['chat']}") as stream:
                stream.readline()
                stream.readline(self._chance.randrange(1, 4_000))  # what follows a name is one line, however long
            del others
            self._ringside.ask(f"chats/{started['chat']}")
        witness.wait()
        return True

    def _reload_page(self, started: dict[str, Any], witness: Witness) -> bool:
        """Load the page again and again, in Chromium, and see that it shows the reply in the end."""
        assert self._tab is not None
        self._tab.open(self._ringside.instance.url, started["chat"])
        for _ in range(3):
            self._tab.reload()
            time.sleep(self._chance.uniform(0.0, 1.0))
        self._tab.wait_until_ready()
        witness.wait()
        if self._settings["backend"] == "echo":  # its Markdown is known to keep every word
            wait_until(lambda: self._shows(witness.text), "the page shows the reply")
        if self._tab.complaints:
            raise FailedCheckError(f"the page complained: {self._tab.complaints[:3]}")
        return True

    def _shows(self, text: str) -> bool:
        return self._tab is not None and words(self._tab.shown_text()) == words(text)

    def _fill_disk(self, started: dict[str, Any], witness: Witness) -> bool:
        with self._full_disk():
            time.sleep(self._chance.uniform(0.5, 3.0))
        witness.wait()
        return True

    @contextmanager
    def _full_disk(self) -> Iterator[None]:
        if self._disk is None:
            wal = self._ringside.database_path.with_name("chats.sqlite-wal")
            self._ringside.limit_file_size(wal.stat().st_size if wal.exists() else 0)
            yield
            self._ringside.limit_file_size(None)
            return
        filler = self._disk / "filler"
        with filler.open("wb", buffering=0) as file:
            for block in (2**20, 4096, 1):
                try:
                    while file.write(b"\0" * block) == block:
                        pass
                except OSError:
                    continue
        yield
        filler.unlink()

    # What is checked

    def _check_kept(self, started: dict[str, Any], witness: Witness, keeps_all: bool) -> str:
        kept, seen = self._ringside.text(started["message"]), witness.text
        if not (kept.startswith(seen) or seen.startswith(kept)):
            raise FailedCheckError(f"kept {kept[-200:]!r} where {seen[-200:]!r} was written")
        if keeps_all and kept != seen:
            raise FailedCheckError(f"{len(seen)} characters were written and {len(kept)} are kept")
        if not keeps_all:
            self.most_lost_s = max(self.most_lost_s, witness.age_s(len(kept), self._killed_at_s))
            if len(kept) < witness.num_chars_at(self._killed_at_s - MOST_LOST_S):
                raise FailedCheckError(f"more than {MOST_LOST_S:g} s were lost: {self.most_lost_s:.2f}")
        self._check_exact(started, kept)
        return kept

    def _check_it_goes_on(self, started: dict[str, Any], kept: str) -> None:
        """Go on with the reply and send another message; then read all of it from the database itself."""
        if self._message(started)["status"] != "complete":
            whole = self._written(self._ringside.ask(f"messages/{started['message']}/resume", {}))
            if not whole.startswith(kept):
                raise FailedCheckError("what was gone on with is not what was kept")
            self._check_exact(started, whole)
        else:
            whole = kept
        sent = self._ringside.ask(f"chats/{started['chat']}/send", {"text": "And then?"})
        answer = self._written(sent)
        for message, text in ((started["message"], whole), (sent["message"], answer)):
            if self._from_database(message) != text:
                raise FailedCheckError("the database holds another text than the page shows")

    def _written(self, started: dict[str, Any]) -> str:
        """Wait for a reply that nothing happens to; return its text."""
        witness = Witness(self._ringside.instance, started["run"])
        witness.wait()
        end = witness.end
        if end is None or end.reason != "length":
            raise FailedCheckError(f"the next reply ended with {end and (end.reason, end.error)}")
        return witness.text

    def _check_exact(self, started: dict[str, Any], text: str) -> None:
        """Compare with what echo writes for this seed, where echo wrote it."""
        message = self._message(started)
        if self._settings["backend"] != "echo" or not text:
            return
        written = "".join(islice(echo_text.document(int(message["seed"]), 0), message["num_tokens"]))
        if written != text:
            raise FailedCheckError(f"{message['num_tokens']} tokens are kept with a text that is not theirs")

    def _message(self, started: dict[str, Any]) -> dict[str, Any]:
        messages = self._ringside.ask(f"chats/{started['chat']}")["messages"]
        return next(dict(message) for message in messages if message["id"] == started["message"])

    def _from_database(self, message_id: int) -> str:
        with closing(sqlite3.connect(self._ringside.database_path)) as connection:
            return str(connection.execute("SELECT text FROM messages WHERE id = ?", (message_id,)).fetchone()[0])


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a small disk on a folder; None where that is not allowed."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        is_mounted = False
    try:
        yield folder if is_mounted else None
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def main() -> int:
    """Run the rounds asked for; return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves no process and no disk behind
    asked = _arguments()
    backends = asked.backend or ["echo"]
    model = {**_SMALL, "model": asked.model, "max_new_tokens": asked.tokens}
    settings = [_ECHO if name == "echo" else {**model, "backend": name} for name in backends]
    seed = asked.seed if asked.seed is not None else random.randrange(10**6)
    print(f"{asked.rounds} rounds with {' and '.join(backends)}, seed {seed}", flush=True)
    browser = nullcontext() if asked.without_page else open_tab()
    with browser as tab, tempfile.TemporaryDirectory(prefix="ringside-faults-") as work:
        home = Path(work) / "home"
        home.mkdir()
        with small_disk(home) as disk:
            ringside = Ringside(home, Path(work), with_page=not asked.without_page)
            faults = FaultRun(ringside, settings, disk, random.Random(seed), tab)
            try:
                return _run(ringside, faults, asked.rounds)
            finally:
                ringside.close()


def _run(ringside: Ringside, faults: FaultRun, num_rounds: int) -> int:
    """Do the rounds and print the counts, also where it is told to end early."""
    ringside.start()
    num_done = 0
    try:
        while num_done < num_rounds:
            print(f"{num_done + 1:4}  {faults.round()}", flush=True)
            num_done += 1
    except KeyboardInterrupt:
        print("told to end early")
    except Exception as error:
        print(f"{num_done + 1:4}  FAILED ({faults.doing}): {type(error).__name__}: {error}", flush=True)
        raise
    print(f"\n{_table(faults.counts)}\n")
    print(f"{num_done:5}  rounds, nothing lost but the last {faults.most_lost_s:.2f} s before a kill at most")
    return 0 if num_done == num_rounds else 1


def _table(counts: Counter[tuple[str, str]]) -> str:
    """Return the counts as a Markdown table: a row for each fault, a column for each backend."""
    faults, backends = (sorted({key[place] for key in counts}) for place in (0, 1))
    rows = [["Fault", *backends], ["---", *("---:" for _ in backends)]]
    rows += [[fault, *(str(counts[fault, backend]) for backend in backends)] for fault in faults]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Treat a real Ringside badly and check that nothing is lost.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument(
        "--backend", choices=("echo", "ring", "llamacpp"), action="append", help="may be given again; echo by default"
    )
    parser.add_argument("--model", default="gemma-3-270m", help="for ring and llamacpp")
    parser.add_argument("--tokens", type=int, default=100, help="of a reply, for ring and llamacpp")
    parser.add_argument("--seed", type=int, help="repeats the choices of a run, not its moments")
    parser.add_argument("--without-page", action="store_true", help="leave Gradio and Chromium out: starts faster")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
