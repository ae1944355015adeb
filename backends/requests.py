"""What is asked of a backend: which model to load and how, and what to generate. Plain frozen values, picklable.

`None` means "no limit" everywhere in this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal


class CachePolicy(str, Enum):
    """How much of the past each layer keeps."""

    RING = "ring"
    """Every layer bounded: sliding layers to their window, full layers to sinks + window. Memory stays flat."""
    AS_TRAINED = "as trained"
    """Sliding layers bounded, full layers keep everything and grow."""
    FULL = "full"
    """Every layer keeps everything: the baseline that grows."""


Precision = Literal["auto", "float32", "bfloat16", "float16", "int8"]
Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class LoadRequest:
    """One model, one memory policy.

    Attributes:
        backend: name in `registry.BACKENDS`.
        model: path of a GGUF file or of a Hugging Face folder; ignored by the echo backend.
        policy: see `CachePolicy`.
        window: W, keys a token sees in a bounded layer, itself included; at least 1.
        sinks: S, first positions pinned on bounded full layers; None pins the whole system prompt.
        device: "auto" takes the GPU where there is one.
        precision: of the weights as held; "auto" lets the backend choose.
        growing_context_tokens: cells reserved by backends that must allocate a growing cache up front
            (llama.cpp under "as trained" and "full"); bounded caches ignore it.
        num_threads: CPU threads; None leaves one physical core to the page (see `backends.threads`).
        chat_template: Jinja source given by hand; None takes the model's own.
        options: a leaf's own switches, as text (the echo backend's rate and faults, for one).
    """

    backend: str
    model: str
    policy: CachePolicy = CachePolicy.RING
    window: int = 512
    sinks: int | None = 4
    device: Device = "auto"
    precision: Precision = "auto"
    growing_context_tokens: int = 32_768
    num_threads: int | None = None
    chat_template: str | None = None
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """One turn of a chat.

    Attributes:
        role: who speaks.
        text: exactly as typed or generated.
        token_ids: for a generated reply, the ids the model really produced. Where they are given, prompts use them
            instead of tokenising `text` again, so half a word continues as the same half word.
        pieces: for a reply that a person also wrote in, in place of `token_ids`: all of `text` in order, ids where
            the model wrote and plain text elsewhere.
    """

    role: Literal["system", "user", "assistant"]
    text: str
    token_ids: tuple[int, ...] | None = None
    pieces: tuple[str | tuple[int, ...], ...] | None = None

    @property
    def known_pieces(self) -> tuple[str | tuple[int, ...], ...] | None:
        """The message as ids and text; None where no id is known."""
        if self.pieces is not None:
            return self.pieces
        return (self.token_ids,) if self.token_ids else None

    @property
    def num_drawn_tokens(self) -> int:
        """How many ids of the message the model drew."""
        return sum(len(piece) for piece in self.known_pieces or () if not isinstance(piece, str))


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # false for NaN too
        raise ValueError(f"{name} of {value} is outside {low:g} to {high:g}")


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn; the same words and the same results on every backend.

    Applied in this order: repetition penalty, top-k, top-p, min-p, temperature, draw. The draw is by inverse CDF in
    token-id order with `draws.uniform(seed, index)`, so equal logits give equal text on every backend.

    Attributes:
        temperature: 0 is greedy (after the repetition penalty).
        top_k: the k most likely tokens; None keeps all.
        top_p: smallest set of most likely tokens whose probability reaches p; 1 keeps all.
        min_p: tokens at least this fraction of the most likely one; 0 keeps all.
        repetition_penalty: divides positive and multiplies negative logits of recent tokens; 1 is off.
        repetition_window: how many recent tokens, prompt included; None is the whole sequence.
        seed: None draws a fresh one, reported in `Finished.seed`.
    """

    temperature: float = 0.8
    top_k: int | None = 64
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int | None = 256
    seed: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0, 100.0)
        _check("top-p", self.top_p, 0.0, 1.0)
        _check("min-p", self.min_p, 0.0, 1.0)
        _check("repetition penalty", self.repetition_penalty, 0.01, 100.0)
        for name, count in (("top-k", self.top_k), ("repetition window", self.repetition_window)):
            if count is not None and count < 1:
                raise ValueError(f"{name} of {count} is below 1; leave it empty for no limit")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise ValueError(f"seed {self.seed} is outside 0 to 2**64 - 1; leave it empty for a random one")


@dataclass(frozen=True)
class GenerationRequest:
    """One reply.

    Attributes:
        messages: the chat so far, oldest first. If the last one is the assistant's, the reply continues it.
        sampling: see `Sampling`.
        stop: strings that end the reply; neither they nor what follows is ever emitted.
        max_new_tokens: None writes until stopped.
        ignore_end: "keep writing": the end-of-text tokens are never drawn.
        raw: the messages' texts follow one another as they are, without any template or line between them.
    """

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    max_new_tokens: int | None = None
    ignore_end: bool = False
    raw: bool = False
