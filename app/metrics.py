"""Figures of a run over time, bounded however long it goes on: min/max buckets, always the whole run in view."""

from __future__ import annotations

from dataclasses import dataclass, field

TRACES = (
    "tokens_per_s",
    "tokens_per_s_smooth",
    "process_bytes",
    "device_process_bytes",
    "device_allocated_bytes",
    "kv_held_bytes",
    "kv_allocated_bytes",
    "kv_full_bytes",
)
"""Names of the traces, in the order of `Sample.values`."""


@dataclass(frozen=True)
class Sample:
    """Figures at one moment. `tokens` counts the reply's tokens, `time_s` its seconds of generation, prefill included.

    `values` follow `TRACES`; None where there is no such figure (GPU bytes on a CPU, a rate before the second token).
    """

    tokens: int
    time_s: float
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Summary:
    """The big numbers of the panel. None: not known yet, or does not apply.

    Attributes:
        num_tokens: of the reply so far.
        tokens_per_s: now, smoothed over about 3 s.
        tokens_per_s_average: since the first token, prefill left out.
        time_to_first_token_s: from the worker's start on the request to the first token: the prefill.
        elapsed_s: of generation, prefill included; a continued reply adds its stretches.
        prompt_tokens, prompt_done_tokens, reused_tokens: of the prefill.
        prompt_tokens_per_s: of the prompt tokens really read.
        window_filled_tokens, window_tokens: see `MemoryFigures`.
        process_bytes, process_peak_bytes: resident memory of the worker, now and at most.
    """

    num_tokens: int = 0
    tokens_per_s: float | None = None
    tokens_per_s_average: float | None = None
    time_to_first_token_s: float | None = None
    elapsed_s: float = 0.0
    prompt_tokens: int = 0
    prompt_done_tokens: int = 0
    reused_tokens: int = 0
    prompt_tokens_per_s: float | None = None
    position_tokens: int = 0
    window_filled_tokens: int = 0
    window_tokens: int = 0
    kv_held_bytes: int = 0
    kv_allocated_bytes: int = 0
    kv_full_bytes: int = 0
    weights_bytes: int = 0
    snapshot_bytes: int = 0
    process_bytes: int = 0
    process_peak_bytes: int = 0
    device_process_bytes: int | None = None
    device_allocated_bytes: int | None = None


@dataclass(frozen=True)
class PrefillSpan:
    """A stretch in which a prompt was read: at `tokens` of the reply, from `start_s` to `end_s`."""

    tokens: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class MetricsRecord:
    """What is kept with a message and drawn by the charts.

    Attributes:
        summary: the big numbers.
        traces: per name of `TRACES`, points (tokens, time_s, value) in order, at most 2,000 of them.
        prefills: one a stretch; a continued reply has several.
        sequence: samples ever recorded; pass it to `MetricsRecorder.samples_since` to follow on.
    """

    summary: Summary = field(default_factory=Summary)
    traces: dict[str, list[tuple[int, float, float]]] = field(default_factory=dict)
    prefills: tuple[PrefillSpan, ...] = ()
    sequence: int = 0
