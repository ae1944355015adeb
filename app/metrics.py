"""Figures of a run over time: what the charts draw, the big numbers over them, and how both are kept with a message.

Knows nothing of processes or pages: it is told token counts, seconds and memory figures, and its clock is given.
"""

from __future__ import annotations

import csv
import io
import json
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice

from app.loops import LoopDetector
from app.rates import LEAST_READ_TOKENS, AverageRate, SmoothedRate
from app.series import BoundedSeries, Point, Points
from app.worker_messages import Update
from backends.events import MemoryFigures, PrefillProgress

TRACES = (
    "tokens_per_s",
    "tokens_per_s_smooth",
    "process_bytes",
    "device_process_bytes",
    "device_allocated_bytes",
    "kv_held_bytes",
    "kv_allocated_bytes",
    "kv_full_bytes",
    "distinct_share",
)
"""Names of the traces, in the order of `Sample.values`."""

MAX_POINTS = 2000
"""Points of a trace kept at most; see `app.series`."""

MAX_RECENT_SAMPLES = 300
"""Samples held for followers that want only what is new: 15 s at 20 a second; one later gets the whole series."""


@dataclass(frozen=True, slots=True)
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
        prompt_tokens_per_s: of the prompt tokens really read; None where too few were to tell.
        position_tokens, window_filled_tokens, window_tokens, num_rows, window, asked_window: see `MemoryFigures`, as
            are the byte counts.
        process_bytes, process_peak_bytes: resident memory of the worker, now and at most.
        loop_tokens: length of what the reply repeats over and over, see `app.loops`; None while it does not.
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
    num_rows: int = 1
    window: int = 0
    asked_window: int = 0
    process_bytes: int = 0
    process_peak_bytes: int = 0
    device_process_bytes: int | None = None
    device_allocated_bytes: int | None = None
    loop_tokens: int | None = None


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
    traces: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    prefills: tuple[PrefillSpan, ...] = ()
    sequence: int = 0

    def pack(self) -> bytes:
        """Return the record as compressed JSON, some 100 kB at most."""
        # One trace after the other: as lists, all of them together would be megabytes.
        traces = ",".join(f"{_dumped(name)}:{_dumped(list(points))}" for name, points in self.traces.items())
        summary, prefills = asdict(self.summary), [asdict(span) for span in self.prefills]
        rest = _dumped({"summary": summary, "prefills": prefills, "sequence": self.sequence})
        return zlib.compress(f'{{"traces":{{{traces}}},{rest[1:]}'.encode())

    @classmethod
    def unpack(cls, packed: bytes) -> MetricsRecord:
        """Read what `pack` wrote; figures this version does not know are left out.

        Raises:
            ValueError: the bytes are not a record.
        """
        try:
            content = json.loads(zlib.decompress(packed))
            known = {each.name for each in fields(Summary)}
            return cls(
                Summary(**{name: value for name, value in content["summary"].items() if name in known}),
                {name: Points((int(n), t, v) for n, t, v in points) for name, points in content["traces"].items()},
                tuple(PrefillSpan(**span) for span in content["prefills"]),
                content["sequence"],
            )
        except (zlib.error, KeyError, TypeError) as error:
            raise ValueError(f"{len(packed)} bytes are no metrics record: {error}") from error

    def to_csv(self) -> str:
        """Return every kept point, one moment a row, header first; empty where a trace keeps no point at a moment."""
        rows: dict[tuple[float, int], dict[str, float]] = {}
        for name, points in self.traces.items():
            for tokens, time_s, value in points:
                rows.setdefault((time_s, tokens), {})[name] = value
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["tokens", "time_s", *TRACES])
        for (time_s, tokens), values in sorted(rows.items()):
            writer.writerow([tokens, round(time_s, 4), *(values.get(name, "") for name in TRACES)])
        return text.getvalue()


class MetricsRecorder:
    """Turns what a worker reports into a bounded record. One owner writes; the owner also locks.

    Args:
        clock: seconds, only for what happens between two reports (elapsed time, a rate that sinks in a stall).
        earlier: record of the reply so far, if it is being continued: tokens and seconds go on from there.

    Attributes:
        loops: tells whether the reply goes round in circles, of this stretch of it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, earlier: MetricsRecord | None = None) -> None:
        earlier = earlier or MetricsRecord()
        self._clock = clock
        self._started_at_s: float | None = None
        self._base_tokens = earlier.summary.num_tokens
        self._base_s = earlier.summary.elapsed_s
        self._summary = replace(earlier.summary, time_to_first_token_s=None, tokens_per_s=None, loop_tokens=None)
        self.loops = LoopDetector()
        self._series = {name: BoundedSeries(MAX_POINTS, earlier.traces.get(name, ())) for name in TRACES}
        self._prefills = list(earlier.prefills)
        self._sequence = earlier.sequence
        self._recent: deque[Sample] = deque(maxlen=MAX_RECENT_SAMPLES)
        self._rate = SmoothedRate()
        self._average = AverageRate.of(earlier.summary.num_tokens, earlier.summary.tokens_per_s_average)
        self._last_s = 0.0
        self._ended = False

    def start(self) -> None:
        """Note that the worker starts on the request now."""
        self._started_at_s = self._clock()

    def prefill(self, progress: PrefillProgress, time_s: float) -> None:
        """Note prompt tokens read, `time_s` after the worker's start on this request."""
        read = progress.done_tokens - progress.reused_tokens
        self._summary = replace(
            self._summary,
            prompt_tokens=progress.total_tokens,
            prompt_done_tokens=progress.done_tokens,
            reused_tokens=progress.reused_tokens,
            prompt_tokens_per_s=read / time_s if read >= LEAST_READ_TOKENS and time_s > 0 else None,
        )

    def advance(self, update: Update) -> None:
        """Note what a report of the worker says of tokens, time and memory; one without tokens records no rate."""
        total = self._base_tokens + update.num_generated_tokens
        num_new = len(update.token_ids)
        self.loops.push(update.token_ids)
        rates: tuple[float | None, float | None] = (None, None)
        self._last_s = max(self._last_s, update.time_s)
        if update.first_token_s is not None and self._summary.time_to_first_token_s is None:
            self._first_token(update.first_token_s)
            num_new -= 1
        if num_new:
            rates = (self._rate.advance(num_new, update.time_s), self._rate.smooth)
            self._average.advance(num_new, update.time_s)
        self._note_memory(update.memory, update.process_bytes)
        self._summary = replace(
            self._summary,
            num_tokens=total,
            tokens_per_s_average=self._average.value,
            loop_tokens=self.loops.period_tokens,
        )
        self._record(total, rates, update.memory, update.process_bytes)

    def end(self, time_s: float) -> None:
        """Note that the request is over; the elapsed time stands still from here."""
        self._last_s = max(self._last_s, time_s)
        self._ended = True

    def summary(self) -> Summary:
        """Return the big numbers as of now."""
        elapsed_s = self._elapsed_s()
        rate = self._rate.smooth if self._ended else self._rate.now(elapsed_s)
        return replace(self._summary, elapsed_s=self._base_s + elapsed_s, tokens_per_s=rate)

    @property
    def loop_tokens(self) -> int | None:
        """The length of what the reply repeats over and over; None while it does not."""
        return self._summary.loop_tokens

    def record(self) -> MetricsRecord:
        """Return everything kept."""
        traces = {name: points for name, series in self._series.items() if (points := series.points())}
        return MetricsRecord(self.summary(), traces, tuple(self._prefills), self._sequence)

    def samples_since(self, sequence: int) -> tuple[int, list[Sample]] | None:
        """Return (sequence now, samples after `sequence`), or None if some of them are no longer held."""
        missing = self._sequence - sequence
        if not 0 <= missing <= len(self._recent):
            return None
        return self._sequence, list(islice(self._recent, len(self._recent) - missing, None))

    def _first_token(self, time_s: float) -> None:
        self._summary = replace(self._summary, time_to_first_token_s=time_s)
        self._prefills.append(PrefillSpan(self._base_tokens, self._base_s, self._base_s + time_s))
        self._rate.start(time_s)
        self._average.start(time_s)

    def _elapsed_s(self) -> float:
        if self._ended or self._started_at_s is None:
            return self._last_s
        return max(self._last_s, self._clock() - self._started_at_s)

    def _note_memory(self, memory: MemoryFigures | None, process_bytes: int) -> None:
        peak_bytes = max(self._summary.process_peak_bytes, process_bytes)
        self._summary = replace(self._summary, process_bytes=process_bytes, process_peak_bytes=peak_bytes)
        if memory is not None:
            self._summary = replace(self._summary, **asdict(memory))

    def _record(
        self,
        tokens: int,
        rates: tuple[float | None, float | None],
        memory: MemoryFigures | None,
        process_bytes: int,
    ) -> None:
        figures = asdict(memory) if memory is not None else {}
        values = (*rates, process_bytes or None, *map(figures.get, TRACES[3:-1]), self.loops.distinct_share)
        sample = Sample(tokens, self._base_s + self._last_s, values)
        for name, value in zip(TRACES, values, strict=True):
            if value is not None:
                self._series[name].add((sample.tokens, sample.time_s, value))
        self._recent.append(sample)
        self._sequence += 1


def _dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
