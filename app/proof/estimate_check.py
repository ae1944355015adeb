"""An estimate beside what is then measured: the model is loaded, written with past a full window, and weighed."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

from app.proof.estimate import Outlook
from app.proof.measurement import Measurement, measure
from app.proof.quantities import bytes_text
from app.proof.report import Table
from backends.errors import WorkerDiedError
from backends.requests import CachePolicy, GenerationRequest, LoadRequest, Message, Sampling
from models.sizing import resolved_sinks

KV_PROMISE, PROCESS_PROMISE = 0.02, 0.1
_REPLY_TOKENS = 32
_MOST_FILLED_TOKENS = 4096
_SENTENCE, _SENTENCE_TOKENS = "It was late in the year. ", 6


@dataclass(frozen=True)
class Checked:
    """One figure, estimated and measured.

    Attributes:
        promise: largest share the two may be apart; None where nothing is promised.
    """

    name: str
    estimated_bytes: int
    measured_bytes: int | None
    promise: float | None = None

    @property
    def difference(self) -> float | None:
        """Measured over estimated, less one; None where nothing was measured or estimated."""
        if self.measured_bytes is None or not self.estimated_bytes:
            return None
        return self.measured_bytes / self.estimated_bytes - 1

    @property
    def is_kept(self) -> bool | None:
        """Whether the promise holds; None where there is none, or nothing to hold it against."""
        return None if self.promise is None or self.difference is None else abs(self.difference) <= self.promise


def run(load: LoadRequest, log_path: Path | None = None) -> Generator[Measurement, None, None]:
    """Load in a fresh worker, read a text that fills the window, or 4,096 tokens of a larger one, and write a little.

    Raises:
        WorkerDiedError: the model did not load, or the reply failed.
    """
    filled = min(load.window + resolved_sinks(load), _MOST_FILLED_TOKENS)
    prompt = Message("user", _SENTENCE * (filled // _SENTENCE_TOKENS + 1))
    request = GenerationRequest((prompt,), Sampling(seed=0), max_new_tokens=_REPLY_TOKENS, ignore_end=True)
    for measured in measure("check", load, request, log_path):
        yield measured
        if measured.error:
            raise WorkerDiedError(measured.error, "")


def as_measured(request: LoadRequest, measured: Measurement) -> LoadRequest:
    """Return the request whose estimate a measurement bears out: what grows with the text is as long as it was."""
    return replace(request, growing_context_tokens=_num_tokens(measured)) if _grows_with_text(request) else request


def checked(found: Outlook, measured: Measurement) -> tuple[Checked, ...]:
    """Put the estimate of `as_measured` beside the finished measurement."""
    last = measured.points[-1] if measured.points else None
    kv = None
    if last is not None:
        kv = last.kv_held_bytes if _grows_with_text(found.request) else last.kv_allocated_bytes
    process = None if _is_set_aside(found.request) else PROCESS_PROMISE
    return (
        Checked("Weights", found.weights_bytes, measured.model.weights_bytes if measured.model else None),
        Checked("Keys and values", found.kv_bytes, kv, KV_PROMISE),
        Checked("Process, at the end", found.total_bytes, last.process_bytes if last else None, process),
        Checked("Process, at its peak", found.total_bytes, measured.peak_process_bytes, process),
    )


def _grows_with_text(request: LoadRequest) -> bool:
    return request.policy is not CachePolicy.RING and request.backend != "llamacpp"


def _is_set_aside(request: LoadRequest) -> bool:
    """Whether room for a long text is asked for at once, which the process grows into."""
    return request.policy is not CachePolicy.RING and request.backend == "llamacpp"


def _num_tokens(measured: Measurement) -> int:
    return measured.num_prompt_tokens + len(measured.token_ids)


def check_table(figures: tuple[Checked, ...]) -> Table:
    """Return estimated and measured side by side."""
    rows = [
        (
            each.name,
            bytes_text(each.estimated_bytes),
            "unknown" if each.measured_bytes is None else bytes_text(each.measured_bytes),
            "" if each.difference is None else f"{each.difference:+.1%}",
            "" if each.promise is None else f"{each.promise:.0%}: {_KEPT[each.is_kept]}",
        )
        for each in figures
    ]
    return Table("Estimated and measured", ("", "Estimated", "Measured", "Difference", "Promised within"), rows)


_KEPT = {True: "kept", False: "missed", None: "unknown"}


def check_sentence(found: Outlook, measured: Measurement) -> str:
    """Say at how many tokens it was measured, and what that means for the figures."""
    tokens = _num_tokens(measured)
    words = f"Measured at {tokens:,} tokens, in a fresh worker."
    if _grows_with_text(found.request):
        return f"{words} What grows with the text was estimated for as many here."
    if _is_set_aside(found.request):
        grown = found.request.growing_context_tokens
        return f"{words} Room for {grown:,} is asked for at once; the process grows into it."
    if tokens < found.request.window:
        return f"{words} The window of {found.request.window:,} was not filled."
    return words
