from __future__ import annotations

import threading
import time

from app.outbox import _MOST_WAITING_TOKENS, Outbox
from app.worker_messages import Report, Update
from backends.events import MemoryFigures, TextChunk

PATIENCE_S = 60.0
NO_MEMORY = MemoryFigures(0, 0, 0, 0, 0, 0, 0)


class Pipe:
    """A pipe that is full until it is opened, and remembers what went through."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.updates: list[Update] = []

    def send(self, report: Report) -> None:
        assert self.opened.wait(PATIENCE_S)
        assert isinstance(report, Update)
        self.updates.append(report)


def test_a_generation_waits_for_an_application_that_does_not_read_instead_of_piling_up_text() -> None:
    pipe = Pipe()
    outbox = Outbox(1, pipe.send, lambda: NO_MEMORY)
    num_tokens = 10 * _MOST_WAITING_TOKENS
    num_added = 0

    def generate() -> None:
        nonlocal num_added
        for number in range(num_tokens):
            outbox.add(TextChunk(f"{number} ", (number,)))
            num_added += 1

    generation = threading.Thread(target=generate)
    generation.start()
    deadline_s = time.monotonic() + PATIENCE_S
    while num_added < _MOST_WAITING_TOKENS - 1:
        assert generation.is_alive()
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    generation.join(0.2)
    assert num_added <= 2 * _MOST_WAITING_TOKENS
    pipe.opened.set()
    generation.join(PATIENCE_S)
    assert outbox.close() == num_tokens
    assert "".join(update.text for update in pipe.updates) == "".join(f"{number} " for number in range(num_tokens))
    assert max(len(update.token_ids) for update in pipe.updates) <= 2 * _MOST_WAITING_TOKENS
