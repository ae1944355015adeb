from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from app.limits import Limits
from app.runs import Run
from app.service import Service
from app.steering import NoteGiven, Steering, note_for_model, steered
from app.worker_messages import Update
from backends import echo
from backends.contract import Backend, Cancelled
from backends.events import Event, Finished, PrefillProgress, TextChunk
from backends.requests import GenerationRequest, LoadRequest, Message, Sampling

EchoService = Callable[..., Service]
REQUEST = GenerationRequest((Message("user", "Go on"),), Sampling(seed=3), max_new_tokens=400)


class Recorded:
    """The echo backend, with the requests it was given."""

    def __init__(self, **options: str) -> None:
        load = LoadRequest("echo", "", options={"rate": "max", **options})
        self._backend: Backend = echo.load(load, lambda progress: None)
        self.requests: list[GenerationRequest] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)

    def generate(self, request: GenerationRequest, cancelled: Cancelled) -> Iterator[Event]:
        self.requests.append(request)
        return self._backend.generate(request, cancelled)


def written(events: list[Event | NoteGiven]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def run(backend: Recorded, request: GenerationRequest, *notes: str, every: int = 50) -> list[Event | NoteGiven]:
    return list(steered(backend, request, Steering(notes, every), lambda: False))  # type: ignore[arg-type]


def test_a_steered_reply_is_one_reply_with_one_end_and_every_token_once() -> None:
    backend = Recorded()
    plain = list(backend.generate(REQUEST, lambda: False))
    events = run(backend, REQUEST, "be brief")
    assert written(events) == written(list(plain))  # echo does not read its prompt
    (end,) = [event for event in events if isinstance(event, Finished)]
    assert end is events[-1]
    assert (end.reason, end.num_generated_tokens) == ("length", 400)
    assert sum(isinstance(event, NoteGiven) for event in events) >= 3
    first_prefill = [event for event in events if isinstance(event, PrefillProgress)]
    assert first_prefill


def test_each_request_holds_all_that_was_written_and_noted_in_its_place() -> None:
    backend = Recorded()
    events = run(backend, REQUEST, "be brief")
    shown, pieces, at = "", [], 0
    for request in backend.requests[1:]:
        note = events.index(NoteGiven("be brief"), at)
        chunks = [event for event in events[at:note] if isinstance(event, TextChunk)]
        shown += "".join(chunk.text for chunk in chunks) + note_for_model("be brief")
        pieces += [tuple(token for chunk in chunks for token in chunk.token_ids), note_for_model("be brief")]
        at = note + 1
        last = request.messages[-1]
        assert (last.role, last.text, last.pieces) == ("assistant", shown, tuple(pieces))
        assert request.max_new_tokens == 400 - last.num_drawn_tokens


def test_notes_come_at_the_end_of_a_line_where_there_is_one() -> None:
    script = '["word", " word", " word", ".\\n"]'
    events = run(Recorded(text="script", script=script), replace(REQUEST, ignore_end=True), "be brief", every=30)
    assert NoteGiven("be brief") in events
    for place, event in enumerate(events):
        if isinstance(event, NoteGiven):
            before = next(each for each in reversed(events[:place]) if isinstance(each, TextChunk) and each.text)
            assert before.text.endswith("\n")


def test_without_lines_a_note_waits_no_longer_than_for_a_whole_character() -> None:
    events = run(Recorded(text="script", script='["x", "", "🌊"]'), replace(REQUEST, ignore_end=True), "on", every=16)
    before = [events[place - 1] for place, event in enumerate(events) if isinstance(event, NoteGiven)]
    assert before
    assert all(isinstance(event, TextChunk) and event.text for event in before)


def test_an_outline_gives_each_note_once_and_a_stop_string_held_back_is_not_lost() -> None:
    backend = Recorded(text="script", script='["a\\n", "\\n", "b"]')
    request = replace(REQUEST, ignore_end=True, stop=("\nnever",), max_new_tokens=300)
    events = run(backend, request, "first", "second", every=20)
    assert [event.text for event in events if isinstance(event, NoteGiven)] == ["first", "second"]
    assert written(events) == "a\n\nb" * 100


def test_a_cancelled_reply_ends_as_cancelled_between_and_at_notes() -> None:
    backend = Recorded()
    events: list[Event | NoteGiven] = []
    for event in steered(backend, REQUEST, Steering(("on",), 20), lambda: len(events) > 60):  # type: ignore[arg-type]
        events.append(event)
    assert isinstance(end := events[-1], Finished)
    assert end.reason == "cancelled"


def ended(run: Run) -> Run:
    assert run.wait_until_finished(60), run.view()
    return run


def test_notes_are_kept_where_they_were_given_and_an_outline_goes_on_after_a_stop(echo_service: EchoService) -> None:
    service = echo_service(max_new_tokens=120, rate="max")
    chat = service.create_chat().id
    settings = service.settings(chat)
    service.apply_settings(replace(settings, steering_notes=("one", "two", "three"), steering_every_tokens=40), chat)
    run = ended(service.send(chat, "Go on"))
    first = service.messages(chat)[1]
    assert [note for _, note in first.content.notes()] == ["one"]
    assert (first.text, len(first.token_ids)) == (run.text, 120)
    for _ in range(2):
        ended(service.continue_reply(chat))
    reply = service.messages(chat)[1]
    notes = reply.content.notes()
    assert [note for _, note in notes] == ["one", "two", "three"]
    assert all(reply.text[:at].endswith(("\n", " ", ".")) for at, _ in notes)
    assert "Author's note" not in reply.text
    shown = reply.content.text_for_model()
    assert shown.replace("\n[Author's note: two]\n", "").count("Author's note") == 2


def test_writing_ends_after_the_minutes_given(echo_service: EchoService) -> None:
    service = echo_service(rate="50")
    chat = service.create_chat().id
    service.apply_settings(replace(service.settings(chat), max_minutes=0.5 / 60), chat)
    started_s = time.monotonic()
    run = ended(service.send(chat, "Go on"))
    assert time.monotonic() - started_s < 30
    reply = service.messages(chat)[1]
    assert (reply.status, reply.finish_reason, reply.text) == ("complete", "time", run.text)
    assert reply.token_ids


@pytest.mark.parametrize(("minutes", "time_s", "reason"), [(None, 1e9, None), (1.0, 59.9, None), (1.0, 60.0, "time")])
def test_the_time_that_counts_is_the_workers(minutes: float | None, time_s: float, reason: str | None) -> None:
    update = Update(1, "", (), 0, time_s, None, None, 0.0, None, 0)
    assert Limits(minutes).reached(update) == reason
