from __future__ import annotations

import asyncio
import threading
from array import array

from app.journal import Written
from app.run_views import Ending
from app.runs import Run
from app.worker_messages import Update
from backends.events import LoadProgress, PrefillProgress


def update(text: str, token_ids: tuple[int, ...] = (), prefill: PrefillProgress | None = None) -> Update:
    return Update(1, text, token_ids, len(token_ids), 1.0, 0.5 if token_ids else None, prefill, 0.4, None, 1000)


def test_a_follower_that_comes_late_reads_from_any_offset() -> None:
    run = Run(1, 2)
    for piece in ("Once ", "upon", " a time"):
        run.advance(update(piece, (1,)))
    assert run.text == "Once upon a time"
    view = run.view(5)
    assert (view.text, view.num_chars, view.num_tokens, view.status) == ("upon a time", 16, 3, "running")
    assert run.view(16).text == ""


def test_a_continued_run_starts_with_what_the_message_held() -> None:
    run = Run(1, 2, num_chars=9, num_tokens=2, read_kept=lambda start, end: "half a wo"[start:end])
    run.advance(update("rd", (6,)))
    assert run.text == "half a word"
    assert (run.view(7).text, run.view(10).text) == ("word", "d")
    assert run.view().num_tokens == 3
    assert run.unkept() == (Written(9, "rd", array("i", [6])),)


def test_what_was_kept_is_let_go_and_read_from_where_it_is_kept() -> None:
    kept: list[str] = []
    run = Run(1, 2, read_kept=lambda start, end: "".join(kept)[start:end])
    written = ""
    for number in range(4_000):
        piece = f"word {number} " * 5
        written += piece
        run.advance(update(piece, (number,)))
        if number % 50 == 49:
            pieces = run.unkept()
            kept.extend(each.text for each in pieces)
            run.let_go(len(pieces))
        assert run.num_unkept_chars == len(written) - sum(map(len, kept))
    assert run.text == written
    for offset in (0, 1, len(written) // 2, len(written) - 20_000, len(written) - 1, len(written), len(written) + 9):
        assert run.text_from(offset) == run.view(offset).text == written[offset:]
    assert run._text.start > len(written) - 70_000


def test_status_goes_from_the_queue_to_the_end() -> None:
    run = Run(1, 2)
    assert run.status == "queued"
    run.wait_at(2)
    assert run.view().queue_position == 2
    run.load(LoadProgress("Reading", 1, 4))
    assert (run.status, run.view().queue_position) == ("loading", None)
    run.advance(update("", prefill=PrefillProgress(5, 10)))
    assert run.view().prefill == PrefillProgress(5, 10)
    run.advance(update("a", (1,)))
    assert run.view().status == "running"
    run.finish(Ending("length", seed=3))
    assert (run.finished, run.view().reason) == (True, "length")


def test_the_first_ending_counts() -> None:
    run = Run(1, 2)
    run.finish(Ending("error", error="It broke.", hint="Mend it."))
    run.finish(Ending("cancelled"))
    assert (run.view().reason, run.view().error, run.view().hint) == ("error", "It broke.", "Mend it.")


def test_threads_wake_when_something_changes_and_time_out_when_nothing_does() -> None:
    run = Run(1, 2)
    version = run.version
    assert run.wait_for_change(version, 0.01) == version
    woken: list[int] = []
    followers = [threading.Thread(target=lambda: woken.append(run.wait_for_change(version, 20))) for _ in range(5)]
    for follower in followers:
        follower.start()
    run.advance(update("a", (1,)))
    for follower in followers:
        follower.join(20)
    assert woken == [version + 1] * 5


def test_asyncio_followers_wake_from_another_thread_and_leave_nothing_behind() -> None:
    run = Run(1, 2)

    async def follow() -> list[int]:
        version = run.version
        assert await run.changed(version, 0.01) == version
        waiting = [asyncio.create_task(run.changed(version, 20)) for _ in range(3)]
        await asyncio.sleep(0)
        threading.Thread(target=lambda: run.advance(update("a", (1,)))).start()
        seen = list(await asyncio.gather(*waiting))
        assert await run.changed(version, 20) == version + 1
        return seen

    assert asyncio.run(follow()) == [1, 1, 1]
    run.advance(update("b", (2,)))  # the loop is closed; a forgotten follower would be called here
    assert run.text == "ab"
