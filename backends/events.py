"""What a backend reports while it loads and generates. A closed union of frozen values, picklable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class LoadProgress:
    """One step of loading. `done` and `total` share a unit (bytes, layers); `total` None means unknown."""

    stage: str
    done: int = 0
    total: int | None = None


@dataclass(frozen=True)
class PrefillProgress:
    """Prompt tokens read so far.

    `done_tokens` includes `reused_tokens`, those whose keys were still valid from the turn before. The first report of
    a request carries the prompt itself, reused tokens included; those that follow do not.
    """

    done_tokens: int
    total_tokens: int
    reused_tokens: int = 0
    prompt_ids: tuple[int, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class TextChunk:
    """Whole characters of the reply, with the ids drawn since the last chunk.

    `text` may be empty: a token can be half a character or part of a possible stop string.
    The concatenation over a reply is the reply, byte for byte.

    Attributes:
        is_settled: False while text of the ids so far is held back as a possible stop string. Whoever keeps a reply
            that a crash may cut keeps it up to a settled chunk: its ids and its text then say the same.
    """

    text: str
    token_ids: tuple[int, ...]
    is_settled: bool = True


FinishReason = Literal["stop", "length", "cancelled", "error", "time", "loop"]
"""Backends report the first four; the app adds the last two, for a run it stops by its time or for going in circles."""


@dataclass(frozen=True)
class Finished:
    """The one end of a generation.

    Attributes:
        reason: "stop" for an end-of-text token or stop string, "length" for `max_new_tokens`.
        seed: the seed that was used, drawn or given.
        num_prompt_tokens: tokens of the prompt, reused ones included.
        num_generated_tokens: ids drawn, the end-of-text token excluded.
        message: for "error", one sentence and the way out.
    """

    reason: FinishReason
    seed: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    message: str = ""


Event = PrefillProgress | TextChunk | Finished


@dataclass(frozen=True)
class MemoryFigures:
    """Bytes, measured or counted, at one moment of a run. The worker adds its process figures to the backend's.

    Attributes:
        kv_held_bytes: keys and values that the next token can attend to.
        kv_allocated_bytes: storage set aside for them.
        kv_full_bytes: what a cache that keeps everything would hold at this position (same element size).
        position_tokens: tokens ever fed to the sequence.
        window_filled_tokens: positions a bounded layer now sees, at most its capacity `window_tokens`.
        window_tokens: capacity of a bounded layer, sinks included; 0 where no layer is bounded.
        weights_bytes: the weights as held.
        window: W in force of a bounded layer, without sinks and spare slots; 0 where no layer is bounded.
        asked_window: W as the load request has it.
        device_allocated_bytes: on a GPU, bytes the framework allocated; None on CPU.
        device_process_bytes: on a GPU, VRAM of this process; None on CPU or where the driver does not tell.
        snapshot_bytes: saved cache states kept for regenerate and edit.
        num_rows: replies being written together; keys and values are those of all of them, tokens those of each.
    """

    kv_held_bytes: int
    kv_allocated_bytes: int
    kv_full_bytes: int
    position_tokens: int
    window_filled_tokens: int
    window_tokens: int
    weights_bytes: int
    device_allocated_bytes: int | None = None
    device_process_bytes: int | None = None
    snapshot_bytes: int = 0
    num_rows: int = 1
    window: int = 0
    asked_window: int = 0
