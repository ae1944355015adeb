"""What the page and the command line call: chats, replies, settings, models. Ties the store to the engine.

Every method is thread-safe and returns at once unless said otherwise; replies are written by the engine's own thread
and followed through `app.runs.Run`. Errors a person can act on are `RingsideError` (message and hint). Nothing
here knows Gradio or HTTP.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from app.chat_settings import ChatSettings, chat_settings_from, from_json, to_json
from app.engine import Engine, EngineStatus
from app.input_rules import clean_text, require_loadable, require_words, title_from
from app.jobs import Job
from app.metrics import MetricsRecord
from app.prompts import prompt_messages
from app.reply_keeper import ReplyKeeper
from app.runs import Run
from app.settings import Settings, worker_log_path
from app.store import Chat, Store, StoredMessage
from backends.draws import fresh_seed
from backends.errors import BadRequestError
from backends.requests import GenerationRequest, LoadRequest

_KEPT_RUNS = 4
_LAST_USED = "last used settings"


class Service:
    """The application behind the page. One instance a process; `close` it at the end.

    Args:
        overrides: settings given on the command line, flat names (see `app.chat_settings`); new chats start with them.
    """

    def __init__(
        self, settings: Settings, store: Store, engine: Engine, overrides: Mapping[str, Any] | None = None
    ) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self._lock = threading.RLock()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._keepers: list[ReplyKeeper] = []
        self._new_chat = chat_settings_from(overrides or {}, self._last_used())
        self._notices = [*settings.notices, *store.notices]
        if num_cut := store.mark_running_as_cut():
            what = "A reply was" if num_cut == 1 else f"{num_cut} replies were"
            self._notices.append(f"{what} cut when Ringside last ended. Continue goes on from the last word.")

    @classmethod
    def open(cls, settings: Settings, overrides: Mapping[str, Any] | None = None) -> Service:
        """Open the store and an engine with nothing loaded.

        Raises:
            StoreError: the store cannot be opened.
        """
        return cls(settings, Store(settings.database_path), Engine(worker_log_path()), overrides)

    @property
    def application(self) -> Settings:
        """The application's settings, as read at the start."""
        return self._settings

    # Chats

    def chats(self, query: str = "") -> list[Chat]:
        """Return the chats whose title contains `query`, pinned first, then the most recently written to."""
        return self._store.chats(query)

    def chat(self, chat_id: int) -> Chat:
        """Return one chat. Raises BadRequestError if it is gone (deleted in another tab)."""
        return self._store.chat(chat_id)

    def create_chat(self, title: str = "") -> Chat:
        """Create an empty chat with the settings last used; its first message titles it unless `title` is given."""
        return self._store.add_chat(clean_text(title).strip(), to_json(self._new_chat))

    def rename_chat(self, chat_id: int, title: str) -> Chat:
        """Set a title (blank is refused). Raises BadRequestError."""
        title = " ".join(clean_text(title).split())
        if not title:
            raise BadRequestError("A chat needs a title.", "Type one, or leave the old one.")
        self._store.rename_chat(chat_id, title)
        return self._store.chat(chat_id)

    def pin_chat(self, chat_id: int, pinned: bool) -> Chat:
        """Keep a chat on top of the list, or no longer."""
        self._store.pin_chat(chat_id, pinned)
        return self._store.chat(chat_id)

    def delete_chat(self, chat_id: int) -> None:
        """Stop what the chat is writing and delete it with its messages; a chat already gone is fine."""
        self.stop(chat_id)
        self._store.delete_chat(chat_id)

    # Messages and replies

    def messages(self, chat_id: int) -> list[StoredMessage]:
        """Return the chat's messages, oldest first, text byte for byte; replies being written carry their text so far.

        To follow such a reply without a gap, take its `len(message.text)` as the offset for `Run.text_from`.
        """
        return [self._with_live_text(message) for message in self._store.messages(chat_id)]

    def message(self, message_id: int) -> StoredMessage:
        """Return one message, as `messages` does. Raises BadRequestError if it is gone."""
        message = self._store.message(message_id)
        if message is None:
            raise BadRequestError("This message is gone.", "Load the page again.")
        return self._with_live_text(message)

    def send(self, chat_id: int, text: str) -> Run:
        """Store the user's text, then start (or queue) a reply. The text is kept whatever happens afterwards.

        Raises BadRequestError for a text that is empty or blank, or a chat that is gone.
        """
        text = clean_text(text)
        require_words(text)
        with self._lock:
            chat = self._store.chat(chat_id)
            reply_id = self._store.add_turn(chat_id, text, title=None if chat.title else title_from(text))
            return self._write(chat_id, reply_id)

    def continue_reply(self, chat_id: int) -> Run:
        """Go on with the last reply from its very last token; its message grows.

        Raises BadRequestError if the chat ends with no reply, or one is being written.
        """
        with self._lock:
            self._require_idle(chat_id)
            messages = self._store.messages(chat_id)
            if not messages or messages[-1].role != "assistant":
                raise BadRequestError("There is no reply to continue.", "Send a message first.")
            self._store.mark(messages[-1].id, "queued")
            return self._write(chat_id, messages[-1].id, earlier=messages[-1])

    def regenerate(self, chat_id: int) -> Run:
        """Write the last reply anew (with a fresh seed unless one is set); the former one is set aside, not destroyed.

        Also starts a reply where the chat ends with the user's message. Raises BadRequestError like `continue_reply`.
        """
        with self._lock:
            self._require_idle(chat_id)
            messages = self._store.messages(chat_id)
            if not messages:
                raise BadRequestError("There is nothing to answer yet.", "Send a message first.")
            former = messages[-1].id if messages[-1].role == "assistant" else None
            return self._write(chat_id, self._store.add_turn(chat_id, None, replaces_from=former))

    def edit_last(self, chat_id: int, text: str) -> Run:
        """Replace the last user message, set aside what followed it, and start a reply."""
        text = clean_text(text)
        require_words(text)
        with self._lock:
            self._require_idle(chat_id)
            asked = [message for message in self._store.messages(chat_id) if message.role == "user"]
            if not asked:
                raise BadRequestError("There is no message to edit.", "Send one first.")
            named_after_it = len(asked) == 1 and self._store.chat(chat_id).title == title_from(asked[0].text)
            title = title_from(text) if named_after_it else None
            return self._write(chat_id, self._store.add_turn(chat_id, text, title, replaces_from=asked[-1].id))

    def stop(self, chat_id: int) -> None:
        """Stop what this chat is writing and cancel what it has waiting; twice is fine, nothing running is fine."""
        for run in reversed(self.active_runs(chat_id)):
            self._engine.cancel(run)

    def cancel(self, run_id: str) -> None:
        """Stop or un-queue one run; a run that is over or unknown is fine."""
        if (run := self.run(run_id)) is not None:
            self._engine.cancel(run)

    def run(self, run_id: str) -> Run | None:
        """Return a run that is waiting, running, or among the last few that ended; else None (read the message)."""
        with self._lock:
            return self._runs.get(run_id)

    def run_of_message(self, message_id: int) -> Run | None:
        """Return the run that is writing, or a moment ago wrote, this message; else None."""
        with self._lock:
            return next((run for run in reversed(self._runs.values()) if run.message_id == message_id), None)

    def active_runs(self, chat_id: int | None = None) -> list[Run]:
        """Return the waiting and running runs, of one chat or of all, in the order they will be served."""
        return [run for run in self._engine.runs() if chat_id is None or run.chat_id == chat_id]

    # Settings

    def settings(self, chat_id: int | None = None) -> ChatSettings:
        """Return a chat's settings, or those a new chat would start with."""
        if chat_id is None:
            return self._new_chat
        return from_json(self._store.chat_settings(chat_id), self._new_chat)

    def apply_settings(self, settings: ChatSettings, chat_id: int | None = None) -> None:
        """Keep settings for a chat (and for new ones); a changed model or window is loaded by the next message.

        Raises BadRequestError for a value no model could take (window below 1, an empty model path).
        """
        require_loadable(settings.load)
        text = to_json(settings)
        if chat_id is not None:
            self._store.keep_chat_settings(chat_id, text)
        self._new_chat = settings
        self._store.keep(_LAST_USED, json.dumps({"digest": self._settings.digest, "settings": text}))

    # Model

    def load(self, chat_id: int | None = None) -> None:
        """Start loading the model of the settings now instead of with the next message; watch `status()`."""
        self._engine.load(self.settings(chat_id).load)

    def unload(self) -> None:
        """Stop what runs and end the worker process; returns when its memory is back with the system."""
        self._engine.unload()

    def status(self) -> EngineStatus:
        """Return what the engine is doing, which model is loaded and what its process holds now; cheap."""
        return self._engine.status()

    def load_request_changed(self, request: LoadRequest) -> bool:
        """Tell whether sending with these settings would load a model first."""
        status = self._engine.status()
        return status.model is None or status.request != request

    # Figures and notices

    def metrics(self, message_id: int) -> MetricsRecord | None:
        """Return the series and summary of a reply, running or kept; None for a user's text or a reply without any."""
        run = self.run_of_message(message_id)
        if run is not None:
            return run.metrics()
        packed = self._store.metrics(message_id)
        try:
            return MetricsRecord.unpack(packed) if packed is not None else None
        except ValueError:  # kept by another version: the text matters, its charts less
            return None

    def metrics_csv(self, message_id: int) -> str:
        """Return the series recorded with a reply as CSV, header first. Raises BadRequestError if there is none."""
        record = self.metrics(message_id)
        if record is None:
            raise BadRequestError("This message has no figures.", "Only replies have them.")
        return record.to_csv()

    def notices(self) -> list[str]:
        """Return sentences about the start worth showing once (a damaged file set aside, replies marked as cut)."""
        return list(self._notices)

    def close(self) -> None:
        """Stop and keep everything, end the worker, close the store. Twice is fine."""
        self._engine.close()
        self._retry_leftovers()
        self._store.close()

    def _write(self, chat_id: int, message_id: int, earlier: StoredMessage | None = None) -> Run:
        """Queue a run that writes into the message, or goes on with what it holds."""
        self._retry_leftovers()
        settings = _with_seed(self.settings(chat_id), earlier)
        run = Run(chat_id, message_id)
        if earlier is not None:
            metrics = self.metrics(message_id)
            run = Run(chat_id, message_id, text=earlier.text, token_ids=earlier.token_ids, metrics=metrics)
        keeper = ReplyKeeper(self._store, run, settings)
        self._keepers.append(keeper)
        self._runs[run.id] = run
        self._forget_old_runs()
        self._engine.submit(Job(run, settings.load, self._request_maker(settings, run), keeper))
        return run

    def _request_maker(self, settings: ChatSettings, run: Run) -> Callable[[], GenerationRequest]:
        def make_request() -> GenerationRequest:
            messages = [message for message in self._store.messages(run.chat_id) if message.id <= run.message_id]
            return GenerationRequest(
                messages=prompt_messages(settings.system_prompt, messages),
                sampling=settings.sampling,
                stop=settings.stop,
                max_new_tokens=settings.max_new_tokens,
                ignore_end=settings.keep_writing,
            )

        return make_request

    def _require_idle(self, chat_id: int) -> None:
        self._store.chat(chat_id)
        if self.active_runs(chat_id):
            raise BadRequestError("A reply is being written in this chat.", "Stop it first.")

    def _with_live_text(self, message: StoredMessage) -> StoredMessage:
        if message.status not in ("queued", "running"):
            return message
        run = self.run_of_message(message.id)
        if run is None or run.finished:
            return self._store.message(message.id) or message
        text, token_ids = run.unkept(0, 0)
        return replace(message, text=text, token_ids=token_ids)

    def _retry_leftovers(self) -> None:
        with self._lock:
            for keeper in self._keepers:
                keeper.retry()
            self._keepers = [keeper for keeper in self._keepers if keeper.is_needed]

    def _forget_old_runs(self) -> None:
        finished = [run.id for run in self._runs.values() if run.finished]
        for run_id in finished[:-_KEPT_RUNS]:
            del self._runs[run_id]

    def _last_used(self) -> ChatSettings:
        kept = self._store.kept(_LAST_USED)
        if kept is not None:
            last_used = json.loads(kept)
            if last_used["digest"] == self._settings.digest:
                return from_json(last_used["settings"], self._settings.defaults)
        return self._settings.defaults


def _with_seed(settings: ChatSettings, earlier: StoredMessage | None) -> ChatSettings:
    """Fix the seed before anything is written, so that even a reply cut by a crash goes on with its own.

    Stopping and continuing then writes what not stopping would have.
    """
    seed = settings.sampling.seed
    if seed is None:
        seed = earlier.seed if earlier is not None and earlier.seed is not None else fresh_seed()
    return replace(settings, sampling=replace(settings.sampling, seed=seed))
