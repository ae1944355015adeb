"""From the messages of a chat, as kept, to the messages of a request."""

from __future__ import annotations

from collections.abc import Sequence

from app.store import StoredMessage
from backends.requests import Message


def prompt_messages(system_prompt: str, messages: Sequence[StoredMessage]) -> tuple[Message, ...]:
    """Return what a backend is asked with: the last reply, if it holds text, is the one to be continued.

    A reply that never got a word is left out, and what the person then said in two messages becomes one, since chat
    templates want turns to alternate. Replies carry the ids the model produced, with what a person wrote in them and
    the notes that steered them in between.
    """
    turns = [Message("system", system_prompt)] if system_prompt else []
    for message in messages:
        if message.role == "assistant":
            if message.text or message.token_ids:
                turns.append(_reply(message))
        elif turns and turns[-1].role == "user":
            turns[-1] = Message("user", f"{turns[-1].text}\n\n{message.text}")
        else:
            turns.append(Message("user", message.text))
    return tuple(turns)


def document_messages(document: StoredMessage) -> tuple[Message, ...]:
    """Return what a backend is asked with to go on with a document as it stands; an empty one has no message."""
    return (_reply(document),) if document.text or document.token_ids else ()


def _reply(message: StoredMessage) -> Message:
    content = message.content
    if content.is_plain:
        return Message("assistant", message.text, tuple(message.token_ids) or None)
    pieces = tuple(piece if isinstance(piece, str) else tuple(piece) for piece in content.pieces())
    return Message("assistant", content.text_for_model(), pieces=pieces)
