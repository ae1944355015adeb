"""What one tab is told while it looks at a chat: the reply as it grows, its figures, and what changed elsewhere.

`Follower.poll` is called a few times a second by the route that streams; it returns what is new since the last call,
so its cost and size depend on what was written in between and not on the reply, the chat, or how late the tab came.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from functools import cached_property

from app.chat_settings import ChatSettings
from app.page_data import Json, metrics_data, run_data, sample_data, status_data
from app.runs import Run
from app.service import Service
from app.shared_news import SharedNews
from app.store import Chat
from app.transcripts import Transcripts

SLOW_S = 1.0
"""How often the chat list, the settings and the engine are looked at."""

MAX_EVENT_CHARS = 200_000
"""HTML in one event; a tab that is far behind catches up in several."""


@dataclass(frozen=True)
class Event:
    """One server-sent event: its name and its data."""

    name: str
    data: Json

    @cached_property
    def encoded(self) -> str:
        """As it is sent."""
        return f"event: {self.name}\ndata: {json.dumps(self.data, ensure_ascii=False, separators=(',', ':'))}\n\n"


@dataclass
class _Place:
    """How far a tab is with one run. Tabs at the same place are told the same."""

    version: int = -1
    block: int = 0
    num_chars: int = -1
    sequence: int = 0
    whole_series_sent: bool = False
    is_over: bool = False


class Follower:
    """One tab's view of one chat.

    Args:
        chat_id: the chat on screen; None for a tab that shows none.
        message_id, block, sequence: what the tab has already of the reply being written; it is told to load the chat
            again ("reload") where that reply is no longer being written.
        num_chars: characters that a tab with a notebook has of its document.
        num_changes: edits of the chat that the tab has seen (`Service.num_changes`), to be told of later ones; None for
            those until now.
        clock: seconds, ascending.
        news: shared with other tabs; None for a tab by itself.
    """

    def __init__(
        self,
        service: Service,
        transcripts: Transcripts,
        chat_id: int | None = None,
        *,
        message_id: int | None = None,
        block: int = 0,
        sequence: int = 0,
        num_chars: int = 0,
        num_changes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        news: SharedNews | None = None,
    ) -> None:
        self._service = service
        self._transcripts = transcripts
        self._chat_id = chat_id
        self._awaited = message_id
        self._clock = clock
        self._news = news
        self._places: dict[str, _Place] = {}
        self._runs: dict[str, Run] = {}
        self._is_notebook = chat_id is not None and service.notebooks.has(chat_id)
        self._first_place = _Place(block=block, sequence=sequence, whole_series_sent=sequence > 0)
        if self._is_notebook:
            self._first_place.num_chars = num_chars
        self._next_slow_s = clock()
        self._seen: dict[str, object] = {}
        if chat_id is not None:
            self._seen["changes"] = service.num_changes(chat_id) if num_changes is None else num_changes

    @property
    def busy(self) -> bool:
        """Whether a reply is being followed, so that the next poll should come soon."""
        return bool(self._runs)

    def poll(self) -> list[Event]:
        """Return what is new."""
        news = self._news or SharedNews()
        events = list(self._run_events(news))
        if self._clock() >= self._next_slow_s:
            self._next_slow_s = (self._clock() // SLOW_S + 1) * SLOW_S  # the same look for all tabs
            events.extend(self._slow_events(news))
        return events

    def _run_events(self, news: SharedNews) -> Iterator[Event]:
        chat_id = self._chat_id
        if chat_id is None:
            return
        for run in news.once(("runs", chat_id), lambda: self._service.active_runs(chat_id)):
            self._runs.setdefault(run.id, run)
        if self._awaited is not None:
            awaited, self._awaited = self._awaited, None
            run_awaited = self._service.run_of_message(awaited)
            if run_awaited is None:
                yield Event("reload", {"message": awaited})
            else:
                self._runs.setdefault(run_awaited.id, run_awaited)
                self._places[run_awaited.id] = self._first_place
        for run in list(self._runs.values()):
            yield from self._events_of(run, news)

    def _events_of(self, run: Run, news: SharedNews) -> Iterator[Event]:
        place = self._places.setdefault(run.id, _Place())
        # One look has one version: a run that goes on meanwhile would be worked out anew for the tabs behind the first.
        if (version := news.once(("version", run.id), lambda: run.version)) == place.version:
            return
        key = ("run", run.id, version, self._is_notebook, astuple(place))
        event, place = news.once(key, lambda: self._event_of(run, replace(place)))
        if place.is_over:
            del self._runs[run.id], self._places[run.id]
        else:
            self._places[run.id] = place
        yield event

    def _event_of(self, run: Run, place: _Place) -> tuple[Event, _Place]:
        """Return what a tab at this place is told of a run, and `place`, moved to where the tab is then."""
        version, finished = run.version, run.finished
        data: Json = {"run": run.id, "message": run.message_id, "chat": run.chat_id}
        caught_up = self._add_text(data, run, place)
        self._add_figures(data, run, place)
        # text first, state after: a state that says "finished" must not arrive before the last of the text
        view = run.view(offset=run.num_chars)
        data["state"] = run_data(view)
        if caught_up and finished:
            place.is_over = True
        elif view.status == "finished":
            data["state"]["status"] = "running"
        elif caught_up:
            place.version = version
        return Event("run", data), place

    def _add_text(self, data: Json, run: Run, place: _Place) -> bool:
        """Put the blocks that are new into `data`; tell whether the tab now has them all."""
        if run.num_chars == place.num_chars:
            return True
        if self._is_notebook:
            return self._add_written(data, run, place)
        slice_ = self._transcripts.slice(run.message_id, run.text_from, place.block, max_chars=MAX_EVENT_CHARS)
        place.block += len(slice_.blocks)
        data["text"] = {"first": slice_.first, "blocks": slice_.blocks, "open": slice_.open_html}
        if slice_.open_html is None:
            return False
        place.num_chars = slice_.num_chars
        return True

    def _add_written(self, data: Json, run: Run, place: _Place) -> bool:
        """Put characters into `data` as they are; a tab that was not waiting for this run reads the document first."""
        if place.num_chars < 0:
            place.num_chars = run.num_chars
        text = run.text_from(place.num_chars)[:MAX_EVENT_CHARS]
        data["written"] = {"first": place.num_chars, "text": text}
        place.num_chars += len(text)
        return len(text) < MAX_EVENT_CHARS

    def _add_figures(self, data: Json, run: Run, place: _Place) -> None:
        since = run.samples_since(place.sequence) if place.whole_series_sent else None
        if since is None:
            record = run.metrics()
            data["metrics"] = metrics_data(record)
            place.sequence = record.sequence
            place.whole_series_sent = True
            return
        place.sequence, samples = since
        if samples:
            data["samples"] = [sample_data(sample) for sample in samples]
        data["sequence"] = place.sequence

    def _slow_events(self, news: SharedNews) -> Iterator[Event]:
        if self._is_new("chats", news.lasting("chats", self._listed)):
            yield Event("chats", {})
        if self._is_new("settings", news.lasting(("settings", self._chat_id), self._settings)):
            yield Event("settings", {})
        if self._chat_id is not None and self._is_new("changes", self._service.num_changes(self._chat_id)):
            yield Event("reload", {"chat": self._chat_id})
        status = news.lasting("status", lambda: status_data(self._service.status()))
        if self._is_new("status", status):
            yield Event("status", status)

    def _listed(self) -> tuple[list[Chat], frozenset[int]]:
        return self._service.chats(), frozenset(run.chat_id for run in self._service.active_runs())

    def _settings(self) -> ChatSettings:
        return self._service.settings(self._chat_id)

    def _is_new(self, name: str, value: object) -> bool:
        seen = self._seen.get(name)
        if name in self._seen and (seen is value or seen == value):
            return False
        self._seen[name] = value
        return True
