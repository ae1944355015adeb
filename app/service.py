"""What the page and the command line call: chats, replies, settings, models. Ties the store to the engine.

Every method is thread-safe and returns at once unless said otherwise; replies are written by the engine's own thread
and followed through `app.runs.Run`. Errors a person can act on are `RingsideError` (message and hint). Nothing
here knows Gradio or HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.chat_settings import ChatSettings, chat_settings_from, from_json, to_json, with_changes
from app.editing import Editing
from app.engine import Engine
from app.engine_status import EngineStatus
from app.fed_prompts import FedPrompt, FedPrompts
from app.input_rules import (
    MAX_TITLE_CHARS,
    checked_title,
    clean_text,
    require_loadable,
    require_variants,
    require_words,
    title_from,
)
from app.library import Library
from app.metrics import MetricsRecord
from app.notebooks import Notebooks
from app.proof.background import Measurements
from app.replies import Replies
from app.runs import Run
from app.saved_states import SavedStates
from app.settings import Settings, worker_log_path
from app.store import Chat, ChatKind, Store, StoredMessage
from backends.errors import BadRequestError
from backends.requests import LoadRequest
from models.lone_closing import missing_opening

_LAST_USED = "last used settings"


class Service:
    """The application behind the page. One instance a process; `close` it at the end.

    Args:
        overrides: settings given on the command line, flat names (see `app.chat_settings`); new chats start with them.

    Attributes:
        editing: variants, branches, edits, deletion and undo.
        notebooks: chats that are one document.
        library: search, folders, export, import and presets.
        measurements: comparisons and the doctor's visits, one at a time.
    """

    def __init__(
        self, settings: Settings, store: Store, engine: Engine, overrides: Mapping[str, Any] | None = None
    ) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self.library = Library(store, settings.data_folder)
        self._states = SavedStates(settings.data_folder / "states")
        self._states.keep_only(chat.id for chat in store.chats())
        self._prompts = FedPrompts(settings.data_folder / "prompts")
        self._prompts.keep_only(chat.id for chat in store.chats())
        engine.on_prompt = lambda run, prompt: self._prompts.keep(run.chat_id, run.message_id, prompt)
        self._replies = Replies(store, engine, self.settings, self.library.catch_up_soon, self._states)
        self.editing = Editing(store, self._replies)
        self.notebooks = Notebooks(store, self._replies)
        self.measurements = Measurements(engine, settings.data_folder / "measurements")
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

    def create_chat(self, title: str = "", kind: ChatKind = "chat", settings: ChatSettings | None = None) -> Chat:
        """Create an empty chat; its first message titles it unless `title` is given.

        Args:
            settings: of this chat alone; None takes those that new chats begin with.
        """
        return self._store.add_chat(title_from(title, MAX_TITLE_CHARS), to_json(settings or self._new_chat), kind)

    def create_notebook(self) -> Chat:
        """Return an empty notebook with the settings that new ones begin with: the one there is, or a new one."""
        chat_id = self.notebooks.empty()
        if chat_id is None:
            return self.create_chat(kind="notebook")
        self._store.keep_chat_settings(chat_id, to_json(self._new_chat))
        return self._store.chat(chat_id)

    def rename_chat(self, chat_id: int, title: str) -> Chat:
        """Set a title (blank or very long is refused). Raises BadRequestError."""
        self._store.rename_chat(chat_id, checked_title(title))
        return self._store.chat(chat_id)

    def pin_chat(self, chat_id: int, pinned: bool) -> Chat:
        """Keep a chat on top of the list, or no longer."""
        self._store.pin_chat(chat_id, pinned)
        return self._store.chat(chat_id)

    def delete_chat(self, chat_id: int) -> None:
        """Stop what the chat is writing and delete it with its messages; a chat already gone is fine."""
        self.stop(chat_id)
        self._store.delete_chat(chat_id)
        self._states.forget(chat_id)
        self._prompts.forget(chat_id)

    # Messages and replies

    def messages(self, chat_id: int) -> list[StoredMessage]:
        """Return the chat's messages, oldest first, text byte for byte; replies being written carry their text so far.

        To follow such a reply without a gap, take its `len(message.text)` as the offset for `Run.text_from`.
        """
        return [self._replies.as_of_now(message) for message in self._store.messages(chat_id)]

    def message(self, message_id: int) -> StoredMessage:
        """Return one message, as `messages` does. Raises BadRequestError if it is gone."""
        message = self._store.message(message_id)
        if message is None:
            raise BadRequestError("This message is gone.", "Load the page again.")
        return self._replies.as_of_now(message)

    def send(self, chat_id: int, text: str, num_variants: int = 1) -> Run:
        """Store the user's text, then start (or queue) a reply. The text is kept whatever happens afterwards.

        Of several variants, written at once where the backend can do that, the first run is returned.

        Raises BadRequestError for a text that is empty or blank, a chat that is gone, or variants that cannot be.
        """
        text = clean_text(text)
        require_words(text)
        require_variants(num_variants, self.settings(chat_id).sampling)
        with self._replies.lock:
            self._replies.retry_leftovers()
            chat = self._store.chat(chat_id)
            reply_id = self._store.add_turn(chat_id, text, title=None if chat.title else title_from(text))
            return self._replies.begin(chat_id, reply_id, num_variants)

    def drafts(self, chat_id: int) -> tuple[int, ...]:
        """Return the variants last begun together in a chat, while nobody has picked one; empty for none."""
        return self._replies.drafts(chat_id)

    def begin(self, prompt: str, given: Mapping[str, Any]) -> Run:
        """Have a reply written in a chat of its own, as `ringside generate` does.

        Args:
            given: settings by their flat names, in place of those that new chats start with by `settings.toml`.

        Raises BadRequestError like `send`, and for a setting that cannot be.
        """
        require_words(prompt)
        try:
            settings = chat_settings_from(given, self._settings.defaults)
        except ValueError as error:
            raise BadRequestError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
        chat = self._store.add_chat("", to_json(settings))
        return self.send(chat.id, prompt)

    def continue_reply(self, chat_id: int) -> Run:
        """Go on with the last reply from its very last token; its message grows.

        Raises BadRequestError if the chat ends with no reply, or one is being written.
        """
        with self._replies.lock:
            self._replies.require_idle(chat_id)
            messages = self._store.messages(chat_id)
            if not messages or messages[-1].role != "assistant":
                raise BadRequestError("There is no reply to continue.", "Send a message first.")
            return self._replies.go_on(messages[-1])

    def regenerate(self, chat_id: int, num_variants: int = 1) -> Run:
        """Write the last reply anew (with a fresh seed unless one is set); the former one becomes a variant beside it.

        Several variants are begun as `send` does. Also starts a reply where the chat ends with the user's message.

        Raises BadRequestError like `continue_reply`, or for variants that cannot be.
        """
        require_variants(num_variants, self.settings(chat_id).sampling)
        with self._replies.lock:
            self._replies.require_idle(chat_id)
            messages = self._store.messages(chat_id)
            if not messages:
                raise BadRequestError("There is nothing to answer yet.", "Send a message first.")
            former = messages[-1].id if messages[-1].role == "assistant" else None
            reply_id = self._store.add_turn(chat_id, None, replaces_from=former)
            return self._replies.begin(chat_id, reply_id, num_variants)

    def edit_last(self, chat_id: int, text: str) -> Run:
        """Ask again with another text in place of the last user message; the former one becomes a variant."""
        asked = [message for message in self._store.messages(chat_id) if message.role == "user"]
        if not asked:
            self._store.chat(chat_id)
            raise BadRequestError("There is no message to edit.", "Send one first.")
        return self.editing.ask_again(asked[-1].id, text)

    def num_edits(self, message_id: int) -> int:
        """Return how often a message was changed otherwise than at its end since the start of the application."""
        return self._replies.num_edits.get(message_id, 0)

    def num_changes(self, chat_id: int) -> int:
        """Return how often what a chat shows was changed, other than by a reply that grows, since the start."""
        return self._replies.num_changes.get(chat_id, 0)

    def stop(self, chat_id: int) -> None:
        """Stop what this chat is writing and cancel what it has waiting; twice is fine, nothing running is fine."""
        self._replies.stop(chat_id)

    def cancel(self, run_id: str) -> None:
        """Stop or un-queue one run; a run that is over or unknown is fine."""
        if (run := self.run(run_id)) is not None:
            self._engine.cancel(run)

    def run(self, run_id: str) -> Run | None:
        """Return a run that is waiting, running, or among the last few that ended; else None (read the message)."""
        return self._replies.run(run_id)

    def run_of_message(self, message_id: int) -> Run | None:
        """Return the run that is writing, or a moment ago wrote, this message; else None."""
        return self._replies.run_of_message(message_id)

    def active_runs(self, chat_id: int | None = None) -> list[Run]:
        """Return the waiting and running runs, of one chat or of all, in the order they will be served."""
        return self._replies.active(chat_id)

    def opening(self, message_id: int) -> str:
        """Return the mark of reasoning that a reply lacks at its start, see `models.reasoning`; empty for none."""
        message = self._store.message(message_id)
        if message is None or message.opening or message.role != "assistant":
            return "" if message is None else message.opening
        is_document = self._store.chat(message.chat_id).kind == "notebook"
        return "" if is_document else missing_opening(message.text)

    # Settings

    def settings(self, chat_id: int | None = None) -> ChatSettings:
        """Return a chat's settings, or those a new chat would start with."""
        if chat_id is None:
            return self._new_chat
        return from_json(self._store.chat_settings(chat_id), self._new_chat)

    def apply_settings(self, settings: ChatSettings, chat_id: int | None = None) -> None:
        """Keep settings for a chat; new ones begin with what was changed by this, and with nothing else of the chat.

        A changed model or window is loaded by the next message.

        Raises BadRequestError for a value no model could take (window below 1, an empty model path).
        """
        require_loadable(settings.load)
        former = self.settings(chat_id)
        if chat_id is not None:
            self._store.keep_chat_settings(chat_id, to_json(settings))
        self._new_chat = with_changes(self._new_chat, former, settings)
        kept = {"digest": self._settings.digest, "settings": to_json(self._new_chat)}
        self._store.keep(_LAST_USED, json.dumps(kept))

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
        return self._replies.metrics(message_id)

    def metrics_csv(self, message_id: int) -> str:
        """Return the series recorded with a reply as CSV, header first. Raises BadRequestError if there is none."""
        record = self.metrics(message_id)
        if record is None:
            raise BadRequestError("This message has no figures.", "Only replies have them.")
        return record.to_csv()

    def prompt(self, message_id: int) -> FedPrompt:
        """Return what the model was given when it last wrote a reply. Raises BadRequestError if it is not kept."""
        message = self._store.message(message_id)
        prompt = None if message is None else self._prompts.prompt(message.chat_id, message_id)
        if prompt is None:
            raise BadRequestError("The exact prompt of this reply is not kept.", "Newly written ones are.")
        return prompt

    def notices(self) -> list[str]:
        """Return sentences about the start worth showing once (a damaged file set aside, replies marked as cut)."""
        return list(self._notices)

    def close(self) -> None:
        """Stop and keep everything, end the worker, close the store. Twice is fine."""
        self.measurements.close()
        self._engine.close()
        self._replies.retry_leftovers()
        self.library.close()
        self._store.close()

    def _last_used(self) -> ChatSettings:
        kept = self._store.kept(_LAST_USED)
        if kept is not None:
            last_used = json.loads(kept)
            if last_used["digest"] == self._settings.digest:
                return from_json(last_used["settings"], self._settings.defaults)
        return self._settings.defaults
