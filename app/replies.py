"""Replies being written: starts runs into messages of the store, keeps track of them, and shows messages as of now."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from app.chat_settings import ChatSettings
from app.content import Content, Note
from app.engine import Engine
from app.jobs import Draft, Job
from app.limits import Limits
from app.metrics import MetricsRecord
from app.prompts import document_messages, prompt_messages
from app.reply_keeper import ReplyKeeper, status_after
from app.runs import Run
from app.saved_states import SavedStates
from app.steering import Steering
from app.store import Store, StoredMessage
from backends.draws import fresh_seed
from backends.errors import BadRequestError
from backends.requests import GenerationRequest

_KEPT_RUNS = 8


class Replies:
    """The runs of one application.

    Args:
        settings_of: the settings of a chat.
        before_writing: called before a reply begins or goes on.
        states: where states of backends are kept between runs; None keeps none.

    Attributes:
        lock: held over every change that must not meet another one.
        num_edits: by message, changes other than growing at the end since the start of the application.
        num_changes: by chat, changes of its tree and of what is on screen since then; other tabs look by it.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        settings_of: Callable[[int], ChatSettings],
        before_writing: Callable[[], None] = lambda: None,
        states: SavedStates | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.num_edits: dict[int, int] = {}
        self.num_changes: dict[int, int] = {}
        self._store = store
        self._engine = engine
        self._settings_of = settings_of
        self._before_writing = before_writing
        self._states = states
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._keepers: list[ReplyKeeper] = []
        self._drafts: dict[int, tuple[int, ...]] = {}

    # Starting and stopping

    def begin(self, chat_id: int, message_id: int, num_variants: int = 1) -> Run:
        """Queue a run that writes an empty message, and runs that write variants beside it; return the first."""
        self.count_change(chat_id)
        message_ids = [message_id, *self._store.add_beside(message_id, num_variants - 1)]
        with self.lock:
            self._drafts.pop(chat_id, None)
            if num_variants > 1:
                self._drafts[chat_id] = tuple(message_ids)
        runs = [Run(chat_id, each, read_kept=self._kept_text(each)) for each in message_ids]
        return self._write(runs, None)

    def go_on(self, message: StoredMessage, at: int | None = None) -> Run:
        """Queue a run that goes on with a message from its very last token, or writes at a character inside it."""
        content, behind = message.content, Content()
        if at is not None and at < len(content.text):
            content, behind = content.head(at), content.tail(at)
            self.forget(message.id)
        self._store.begin_growing(message.id, content, behind)
        run = Run(
            message.chat_id,
            message.id,
            num_chars=len(content.text),
            num_tokens=len(content.token_ids),
            ends_message=not behind.text,
            metrics=self.metrics(message.id),
            read_kept=self._kept_text(message.id),
        )
        self.settle(message.chat_id)
        return self._write([run], message)

    def stop(self, chat_id: int) -> None:
        """Stop what a chat is writing and cancel what it has waiting; twice is fine, nothing running is fine."""
        for run in reversed(self.active(chat_id)):
            self._engine.cancel(run)

    def drafts(self, chat_id: int) -> tuple[int, ...]:
        """Return the variants last begun together in a chat, while nobody has picked one; empty for none."""
        with self.lock:
            drafts, tree = self._drafts.get(chat_id, ()), self._store.tree
        return tuple(filter(tree.holds, drafts)) if drafts and tree.leaf(chat_id) in drafts else ()

    def settle(self, chat_id: int) -> None:
        """Note that one of the drafts was picked, or that the chat went on some other way."""
        with self.lock:
            self._drafts.pop(chat_id, None)

    def forget(self, message_id: int) -> None:
        """Forget ended runs of a message whose text was changed otherwise: what they tell of it is no longer so."""
        with self.lock:
            self.num_edits[message_id] = self.num_edits.get(message_id, 0) + 1
            for run in [run for run in self._runs.values() if run.message_id == message_id and run.finished]:
                del self._runs[run.id]

    def count_change(self, chat_id: int) -> None:
        """Note that a chat is no longer what tabs have on screen."""
        with self.lock:
            self.num_changes[chat_id] = self.num_changes.get(chat_id, 0) + 1

    def _fold_again(self, run: Run) -> None:
        """Have tabs show a reply anew: what they took for its answer was reasoning."""
        with self.lock:
            self.num_edits[run.message_id] = self.num_edits.get(run.message_id, 0) + 1
            self.count_change(run.chat_id)

    def require_idle(self, chat_id: int) -> None:
        """Raise BadRequestError if the chat is gone, is being written in, or its last reply is not all kept yet."""
        self.retry_leftovers()
        self._store.chat(chat_id)
        if any(keeper.chat_id == chat_id and keeper.is_over for keeper in self._keepers):
            raise BadRequestError("The end of a reply could not be kept yet.", "Free some space on the disk first.")
        if self.active(chat_id):
            raise BadRequestError("A reply is being written in this chat.", "Stop it first.")

    # Looking

    def run(self, run_id: str) -> Run | None:
        """Return a run that is waiting, running, or among the last few that ended; else None."""
        with self.lock:
            return self._runs.get(run_id)

    def run_of_message(self, message_id: int) -> Run | None:
        """Return the run that is writing, or a moment ago wrote, this message; else None."""
        with self.lock:
            run = next((run for run in reversed(self._runs.values()) if run.message_id == message_id), None)
        # the text of a message that goes on behind its run is whole only in the store
        return None if run is None or (run.finished and not run.ends_message) else run

    def active(self, chat_id: int | None = None) -> list[Run]:
        """Return the waiting and running runs, of one chat or of all, in the order they will be served."""
        return [run for run in self._engine.runs() if chat_id is None or run.chat_id == chat_id]

    def as_of_now(self, message: StoredMessage) -> StoredMessage:
        """Return a message with the text its run has written but not kept yet."""
        if message.status not in ("queued", "running"):
            return message
        run = self.run_of_message(message.id)
        if run is None or run.finished:
            message = self._store.message(message.id) or message
            if run is None or message.status not in ("queued", "running"):
                return message
        unkept = [piece for piece in run.unkept() if piece.start_chars >= len(message.text)]
        token_ids = sum((piece.token_ids for piece in unkept), message.token_ids)
        status = message.status if run.ending is None else status_after(run.ending)
        return replace(message, text=run.text, token_ids=token_ids, status=status)

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

    def retry_leftovers(self) -> None:
        """Write what could not be kept before: the disk was full, for one."""
        with self.lock:
            for keeper in self._keepers:
                keeper.retry()
            self._keepers = [keeper for keeper in self._keepers if keeper.is_needed]

    def _write(self, runs: Sequence[Run], earlier: StoredMessage | None) -> Run:
        self._before_writing()
        with self.lock:
            self.retry_leftovers()
            self._forget_old_runs()
            group = runs[0].id if len(runs) > 1 else None
            jobs = [self._job(run, earlier, place, group) for place, run in enumerate(runs)]
        self._engine.submit(*jobs)
        return runs[0]

    def _job(self, run: Run, earlier: StoredMessage | None, place: int, group: str | None) -> Job:
        settings, seed = _with_seed(self._settings_of(run.chat_id), earlier, place)
        keeper = ReplyKeeper(self._store, run, settings, lambda: self._fold_again(run))
        self._keepers.append(keeper)
        self._runs[run.id] = run
        return Job(
            run,
            settings.load,
            self._request_maker(settings, run),
            keeper,
            Limits(settings.max_minutes, settings.on_loop),
            _steering(settings, earlier),
            self._states.plan(run.chat_id) if self._states is not None else None,
            None if group is None else Draft(group, seed),
        )

    def _request_maker(self, settings: ChatSettings, run: Run) -> Callable[[], GenerationRequest]:
        def make_request() -> GenerationRequest:
            stored = self._store.messages_up_to(run.message_id)
            is_raw = self._store.chat(run.chat_id).kind == "notebook"
            messages = document_messages(stored[-1]) if is_raw else prompt_messages(settings.system_prompt, stored)
            return GenerationRequest(
                messages=messages,
                sampling=settings.sampling,
                stop=settings.stop,
                max_new_tokens=settings.max_new_tokens,
                ignore_end=settings.keep_writing,
                raw=is_raw,
                json_schema=settings.json_schema,
                grammar=settings.grammar,
                stop_in_reasoning=settings.stop_in_reasoning,
            )

        return make_request

    def _kept_text(self, message_id: int) -> Callable[[int, int], str]:
        return lambda start, end: self._store.journal.text(message_id, start, end)

    def _forget_old_runs(self) -> None:
        finished = [run.id for run in self._runs.values() if run.finished]
        for run_id in finished[:-_KEPT_RUNS]:
            del self._runs[run_id]


def _steering(settings: ChatSettings, earlier: StoredMessage | None) -> Steering | None:
    """Return what is to be given on the way, behind the notes that the reply has already."""
    if not settings.steering_notes:
        return None
    num_given = num_tokens = 0
    for stretch in earlier.content.stretches if earlier is not None else ():
        if isinstance(stretch, Note):
            num_given, num_tokens = num_given + 1, 0
        else:
            num_tokens += stretch.num_tokens
    return Steering(settings.steering_notes, settings.steering_every_tokens, num_given, num_tokens)


def _with_seed(settings: ChatSettings, earlier: StoredMessage | None, place: int = 0) -> tuple[ChatSettings, int]:
    """Fix the seed before anything is written, so that even a reply cut by a crash goes on with its own.

    Stopping and continuing then writes what not stopping would have. Variants of a given seed take it and those behind.
    """
    seed = settings.sampling.seed
    if seed is None:
        seed = earlier.seed if earlier is not None and earlier.seed is not None else fresh_seed()
    seed = (seed + place) % 2**64
    return replace(settings, sampling=replace(settings.sampling, seed=seed)), seed
