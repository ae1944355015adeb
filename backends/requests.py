"""What is asked of a backend: which model to load and how, and what to generate. Plain frozen values, picklable.

`None` means "no limit" everywhere in this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal


class CachePolicy(str, Enum):
    """How much of the past each layer keeps."""

    RING = "ring"
    """Every layer bounded: to sinks + window, or to its trained window where that is less. Memory stays flat."""
    AS_TRAINED = "as trained"
    """Sliding layers bounded, full layers keep everything and grow."""
    FULL = "full"
    """Every layer keeps everything: the baseline that grows."""


Precision = Literal["auto", "float32", "bfloat16", "float16", "int8"]
Device = Literal["auto", "cpu", "cuda"]
KVType = Literal["auto", "int8", "fp8"]


@dataclass(frozen=True)
class LoadRequest:
    """One model, one memory policy.

    Attributes:
        backend: name in `registry.BACKENDS`.
        model: path of a GGUF file or of a Hugging Face folder; ignored by the echo backend.
        policy: see `CachePolicy`.
        window: W, keys a token sees in a bounded layer, itself included; at least 1.
        sinks: S, first positions pinned on layers bounded to less than they were trained on; None pins the whole
            system prompt.
        device: "auto" takes the GPU where there is one.
        precision: of the weights as held; "auto" lets the backend choose.
        kv_type: of the stored keys and values; "int8" and "fp8" take one byte a number, "auto" is as exact as the
            backend computes.
        growing_context_tokens: cells reserved by backends that must allocate a growing cache up front
            (llama.cpp under "as trained" and "full"); bounded caches ignore it.
        num_threads: CPU threads; None leaves one physical core to the page (see `backends.threads`).
        chat_template: Jinja source given by hand, or the name of one of the model's templates; None takes its own.
        options: a leaf's own switches, as text (the echo backend's rate and faults, for one).
    """

    backend: str
    model: str
    policy: CachePolicy = CachePolicy.RING
    window: int = 512
    sinks: int | None = 4
    device: Device = "auto"
    precision: Precision = "auto"
    kv_type: KVType = "auto"
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


_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (0.0, 100.0),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "dry_multiplier": (0.0, 100.0),
    "dry_base": (1.0, 100.0),
    "dry_allowed_length": (1, 1000),
    "mirostat_tau": (0.0, 100.0),
    "mirostat_eta": (0.0, 1.0),
}
_SPOKEN = {"top_p": "top-p", "min_p": "min-p", "typical_p": "typical-p", "top_n_sigma": "top-n-sigma"}


def _check_bias(logit_bias: tuple[tuple[int | str, float], ...]) -> None:
    for token, bias in logit_bias:
        if token == "" or (isinstance(token, int) and token < 0):
            raise ValueError(f"logit bias names token {token!r}; give an id of 0 or more, or a text")
        if bias != -math.inf:
            _check(f"logit bias of {token!r}", bias, -1000.0, 1000.0)


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn; the same words and the same results on every backend.

    Applied in this order, which is llama.cpp's (`common/sampling.cpp`): logit bias, repetition with presence and
    frequency penalty, DRY, top-n-sigma, top-k, typical-p, top-p, min-p, XTC, temperature, draw. The draw is by inverse
    CDF in token-id order with `draws.uniform(seed, index)`, so equal logits give equal text on every backend.

    The formulas and their sources stand where they are computed, in `models.sampling_filters`, `models.token_history`
    and `models.token_sampler`.

    Attributes:
        temperature: 0 is greedy (after logit bias, penalties and DRY).
        top_k: the k most likely tokens; None keeps all.
        top_p: smallest set of most likely tokens whose probability reaches p; 1 keeps all.
        min_p: tokens at least this fraction of the most likely one; 0 keeps all.
        repetition_penalty: divides positive and multiplies negative logits of recent tokens; 1 is off.
        repetition_window: how many recent tokens, prompt included; None is the whole sequence. Also that of presence
            and frequency penalty.
        seed: None draws a fresh one, reported in `Finished.seed`.
        presence_penalty: taken off the logit of every recent token; 0 is off, below 0 repeats more.
        frequency_penalty: taken off the logit of a recent token as often as it came; 0 is off.
        logit_bias: added to the logits of tokens given by id or by text; -inf never draws them. A text stands for all
            tokens that spell it, and biases of one token add up.
        typical_p: smallest set of tokens closest to the expected surprise whose probability exceeds p; 1 keeps all.
        top_n_sigma: tokens whose logit is within so many standard deviations of the largest; None keeps all.
        xtc_probability: how often XTC drops every token above its threshold but the least likely; 0 is never.
        xtc_threshold: probability that counts as a top choice for XTC; above 0.5 there is never a second.
        dry_multiplier: size of the DRY penalty on tokens that would go on repeating; 0 is off.
        dry_base: the penalty grows by this factor with each repeated token.
        dry_allowed_length: repeats shorter than this many tokens are free.
        dry_window: how many recent tokens DRY compares; None is the whole sequence.
        dry_breakers: a token that contains one of these texts ends a repeat.
        mirostat_tau: mirostat 2 holds surprise at this many bits a token, in place of top-n-sigma to XTC; its state
            begins anew with each request. None is off.
        mirostat_eta: how fast mirostat 2 corrects itself; 0 never.
    """

    temperature: float = 0.8
    top_k: int | None = 64
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int | None = 256
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    typical_p: float = 1.0
    top_n_sigma: float | None = None
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_window: int | None = 2048
    dry_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat_tau: float | None = None
    mirostat_eta: float = 0.1

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None:
                _check(_SPOKEN.get(name, name.replace("_", " ")), value, low, high)
        counts = {"top-k": self.top_k, "repetition window": self.repetition_window, "DRY window": self.dry_window}
        for name, count in counts.items():
            if count is not None and count < 1:
                raise ValueError(f"{name} of {count} is below 1; leave it empty for no limit")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise ValueError(f"seed {self.seed} is outside 0 to 2**64 - 1; leave it empty for a random one")
        _check_bias(self.logit_bias)
        if "" in self.dry_breakers:
            raise ValueError("a DRY breaker is empty; give at least one character")

    @property
    def counts_tokens(self) -> bool:
        """Whether presence or frequency penalty is on."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0


@dataclass(frozen=True)
class GenerationRequest:
    """One reply.

    Attributes:
        messages: the chat so far, oldest first. If the last one is the assistant's, the reply continues it.
        sampling: see `Sampling`.
        stop: strings that end the reply; neither they nor what follows is ever emitted. One that names a control
            token finds it by its id, although it shows nothing in the text.
        stop_in_reasoning: stop strings count inside the reasoning too, not only once it has closed.
        max_new_tokens: None writes until stopped.
        ignore_end: "keep writing": the end-of-text tokens are never drawn.
        raw: the messages' texts follow one another as they are, without any template or line between them.
        json_schema: the reply is JSON that this schema, itself JSON, allows.
        grammar: the reply is what this grammar allows, in Lark or GBNF or, between slashes, a regular expression.
            Either ends the reply where it is complete, also while `ignore_end` is on.

    Raises:
        ValueError: both a schema and a grammar are given.
    """

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    max_new_tokens: int | None = None
    ignore_end: bool = False
    raw: bool = False
    json_schema: str | None = None
    grammar: str | None = None
    stop_in_reasoning: bool = False

    def __post_init__(self) -> None:
        if self.json_schema is not None and self.grammar is not None:
            raise ValueError("a reply cannot follow both a JSON schema and a grammar; leave one empty")
