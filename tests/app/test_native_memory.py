from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_RESIDENT_AFTER = """
import sys, threading, psutil
from app.native_memory import give_freed_memory_back
if sys.argv[1] == "set":
    give_freed_memory_back()
def hold_and_free():
    for size in range(1, 25):
        large = bytearray(size * 2**20)
        kept.append(bytes(1000))
        del large
kept = []
before = psutil.Process().memory_info().rss
for _ in range(8):
    thread = threading.Thread(target=hold_and_free)
    thread.start()
    thread.join()
print(psutil.Process().memory_info().rss - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is what this sets")
def test_large_blocks_are_given_back_when_they_are_freed() -> None:
    grown_bytes = int(subprocess.check_output([sys.executable, "-c", _RESIDENT_AFTER, "set"]))
    assert grown_bytes < 8 * 2**20


_RESIDENT_AFTER_TRIM = """
import psutil
from app.native_memory import trim
pieces = [bytearray(4000) for _ in range(10_000)]
kept = pieces[::1000] + [bytearray(4000)]
del pieces
before = psutil.Process().memory_info().rss
trim()
print(before - psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is what this asks")
def test_small_blocks_that_were_freed_between_others_are_given_back_by_trimming() -> None:
    given_back_bytes = int(subprocess.check_output([sys.executable, "-c", _RESIDENT_AFTER_TRIM]))
    assert given_back_bytes > 30 * 10**6


_RESIDENT_AFTER_A_REPLY = """
import sys, psutil
from array import array
from pathlib import Path
from app.native_memory import give_freed_memory_back, trim
from app.store import Store
give_freed_memory_back()
store = Store(Path(sys.argv[1]) / "chats.sqlite")
reply = store.add_turn(store.add_chat("Long", "{}").id, "Go on")
def write(num_pieces):
    for _ in range(num_pieces):
        store.append(reply, "\u00e9" * 100_000, array("i", range(25_000)))
    store.finish(reply, "complete")
    trim()
    store.mark(reply, "complete")  # writes the whole row once more
    return psutil.Process().memory_info().rss
before = write(1)
print(write(100) - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures what glibc's allocator gives back")
def test_a_long_reply_that_is_kept_whole_leaves_no_memory_behind(tmp_path: Path) -> None:
    grown_bytes = int(subprocess.check_output([sys.executable, "-c", _RESIDENT_AFTER_A_REPLY, str(tmp_path)]))
    assert grown_bytes < 4 * 2**20, "the reply has 30 MB"
