"""Settings of a chat and of the application: read once at the start, passed down as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.requests import LoadRequest, Sampling


@dataclass(frozen=True)
class ChatSettings:
    """Everything a reply depends on besides the messages.

    Attributes:
        load: backend, model, memory policy, window; a change reloads the model with the next message.
        system_prompt: first message of the prompt; empty for none.
        sampling: see `Sampling`.
        stop: strings that end a reply.
        max_new_tokens: None writes until stopped.
        keep_writing: never draw the end-of-text token.
    """

    load: LoadRequest
    system_prompt: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    max_new_tokens: int | None = None
    keep_writing: bool = False
