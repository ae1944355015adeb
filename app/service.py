"""What the page and the command line call: chats, replies, settings, models. Ties the store to the engine.

Every method is thread-safe and returns at once unless said otherwise; replies are written by the engine's own thread
and followed through `app.runs.Run`. Errors a person can act on are `RingsideError` (message and hint). Nothing
here knows Gradio or HTTP.
"""

from __future__ import annotations

from app.engine import EngineStatus
from app.metrics import MetricsRecord
from app.runs import Run
from app.settings import ChatSettings
from app.store import Chat, StoredMessage
from backends.requests import LoadRequest


class Service:
    """The application behind the page. One instance a process; `close` it at the end."""

    # Chats

    def chats(self, query: str = "") -> list[Chat]:
        """Return the chats whose title contains `query`, pinned first, then the most recently written to."""
        raise NotImplementedError

    def chat(self, chat_id: int) -> Chat:
        """Return one chat. Raises BadRequestError if it is gone (deleted in another tab)."""
        raise NotImplementedError

    def create_chat(self, title: str = "") -> Chat:
        """Create an empty chat with the settings last used; its first message titles it unless `title` is given."""
        raise NotImplementedError

    def rename_chat(self, chat_id: int, title: str) -> Chat:
        """Set a title (blank is refused). Raises BadRequestError."""
        raise NotImplementedError

    def pin_chat(self, chat_id: int, pinned: bool) -> Chat:
        """Keep a chat on top of the list, or no longer."""
        raise NotImplementedError

    def delete_chat(self, chat_id: int) -> None:
        """Stop what the chat is writing and delete it with its messages; a chat already gone is fine."""
        raise NotImplementedError

    # Messages and replies

    def messages(self, chat_id: int) -> list[StoredMessage]:
        """Return the chat's messages, oldest first, text byte for byte; replies being written carry their text so far.

        To follow such a reply without a gap, take its `len(message.text)` as the offset for `Run.text_from`.
        """
        raise NotImplementedError

    def send(self, chat_id: int, text: str) -> Run:
        """Store the user's text, then start (or queue) a reply. The text is kept whatever happens afterwards.

        Raises BadRequestError for a text that is empty or blank, or a chat that is gone.
        """
        raise NotImplementedError

    def continue_reply(self, chat_id: int) -> Run:
        """Go on with the last reply from its very last token; its message grows.

        Raises BadRequestError if the chat ends with no reply, or one is being written.
        """
        raise NotImplementedError

    def regenerate(self, chat_id: int) -> Run:
        """Write the last reply anew (with a fresh seed unless one is set); the former one is set aside, not destroyed.

        Also starts a reply where the chat ends with the user's message. Raises BadRequestError like `continue_reply`.
        """
        raise NotImplementedError

    def edit_last(self, chat_id: int, text: str) -> Run:
        """Replace the last user message, set aside what followed it, and start a reply."""
        raise NotImplementedError

    def stop(self, chat_id: int) -> None:
        """Stop what this chat is writing and cancel what it has waiting; twice is fine, nothing running is fine."""
        raise NotImplementedError

    def cancel(self, run_id: str) -> None:
        """Stop or un-queue one run; a run that is over or unknown is fine."""
        raise NotImplementedError

    def run(self, run_id: str) -> Run | None:
        """Return a run that is waiting, running, or among the last few that ended; else None (read the message)."""
        raise NotImplementedError

    def run_of_message(self, message_id: int) -> Run | None:
        """Return the run that is writing, or a moment ago wrote, this message; else None."""
        raise NotImplementedError

    def active_runs(self, chat_id: int | None = None) -> list[Run]:
        """Return the waiting and running runs, of one chat or of all, in the order they will be served."""
        raise NotImplementedError

    # Settings

    def settings(self, chat_id: int | None = None) -> ChatSettings:
        """Return a chat's settings, or those a new chat would start with."""
        raise NotImplementedError

    def apply_settings(self, settings: ChatSettings, chat_id: int | None = None) -> None:
        """Keep settings for a chat (and for new ones); a changed model or window is loaded by the next message.

        Raises BadRequestError for a value no model could take (window below 1, an empty model path).
        """
        raise NotImplementedError

    # Model

    def load(self, chat_id: int | None = None) -> None:
        """Start loading the model of the settings now instead of with the next message; watch `status()`."""
        raise NotImplementedError

    def unload(self) -> None:
        """Stop what runs and end the worker process; returns when its memory is back with the system."""
        raise NotImplementedError

    def status(self) -> EngineStatus:
        """Return what the engine is doing, which model is loaded and what its process holds now; cheap."""
        raise NotImplementedError

    def notices(self) -> list[str]:
        """Return sentences about the start worth showing once (a damaged file set aside, replies marked as cut)."""
        raise NotImplementedError

    def metrics(self, message_id: int) -> MetricsRecord | None:
        """Return the series and summary of a reply, running or kept; None for a user's text or a reply without any."""
        raise NotImplementedError

    def metrics_csv(self, message_id: int) -> str:
        """Return the series recorded with a reply as CSV, header first. Raises BadRequestError if there is none."""
        raise NotImplementedError

    def load_request_changed(self, request: LoadRequest) -> bool:
        """Tell whether sending with these settings would load a model first."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop and keep everything, end the worker, close the store. Twice is fine."""
        raise NotImplementedError
