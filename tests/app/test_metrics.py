from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from app.metrics import MAX_POINTS, MAX_RECENT_SAMPLES, TRACES, MetricsRecord, MetricsRecorder
from app.worker_messages import Update
from backends.events import MemoryFigures, PrefillProgress

MEMORY = MemoryFigures(
    kv_held_bytes=1000,
    kv_allocated_bytes=2000,
    kv_full_bytes=5000,
    position_tokens=50,
    window_filled_tokens=10,
    window_tokens=12,
    weights_bytes=7,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def update(
    num_tokens: int,
    time_s: float,
    *,
    num_new: int = 0,
    first_token_s: float | None = None,
    memory: MemoryFigures | None = MEMORY,
    process_bytes: int = 1_000_000,
) -> Update:
    return Update(
        number=1,
        text="x" * num_new,
        token_ids=tuple(range(num_new)),
        num_generated_tokens=num_tokens,
        time_s=time_s,
        first_token_s=first_token_s,
        prefill=None,
        prefill_s=0.0,
        memory=memory,
        process_bytes=process_bytes,
    )


def steady(recorder: MetricsRecorder, num_reports: int, *, rate: float = 100.0, start_s: float = 2.0) -> None:
    """One token at `start_s`, then reports of 5 tokens each."""
    recorder.start()
    recorder.advance(update(1, start_s, num_new=1, first_token_s=start_s))
    for report in range(1, num_reports + 1):
        recorder.advance(update(1 + 5 * report, start_s + 5 * report / rate, num_new=5, first_token_s=start_s))


def test_a_steady_run_shows_its_rate_raw_smoothed_now_and_on_average() -> None:
    recorder = MetricsRecorder(Clock())
    steady(recorder, 200)
    summary = recorder.summary()
    assert summary.num_tokens == 1001
    assert summary.time_to_first_token_s == 2.0
    assert summary.tokens_per_s == pytest.approx(100)
    assert summary.tokens_per_s_average == pytest.approx(100)
    traces = recorder.record().traces
    for name in ("tokens_per_s", "tokens_per_s_smooth"):
        assert all(value == pytest.approx(100) for *_, value in traces[name])


def test_prefill_counts_into_no_rate_and_is_marked() -> None:
    recorder = MetricsRecorder(Clock())
    recorder.start()
    recorder.prefill(PrefillProgress(300, 600, 100), 1.0)
    recorder.prefill(PrefillProgress(600, 600, 100), 2.5)
    recorder.advance(update(3, 3.2, num_new=3, first_token_s=3.0))
    summary = recorder.summary()
    assert summary.prompt_tokens_per_s == pytest.approx(500 / 2.5)
    assert (summary.prompt_tokens, summary.prompt_done_tokens, summary.reused_tokens) == (600, 600, 100)
    assert summary.tokens_per_s_average == pytest.approx(2 / 0.2)
    (span,) = recorder.record().prefills
    assert (span.tokens, span.start_s, span.end_s) == (0, 0.0, 3.0)


@pytest.mark.parametrize(("num_reused", "rate"), [(402, None), (401, None), (390, None), (302, 50.0), (0, 201.0)])
def test_a_prompt_has_a_rate_of_what_was_read_and_none_where_it_was_reused(num_reused: int, rate: float | None) -> None:
    recorder = MetricsRecorder(Clock())
    recorder.start()
    recorder.prefill(PrefillProgress(402, 402, num_reused), 2.0)
    assert recorder.summary().prompt_tokens_per_s == rate


def test_the_rate_now_sinks_while_the_next_token_is_overdue_and_elapsed_time_goes_on() -> None:
    clock = Clock()
    recorder = MetricsRecorder(clock)
    steady(recorder, 20)
    clock.now_s += 3.0
    before = recorder.summary()
    clock.now_s += 30.0
    stalled = recorder.summary()
    assert before.tokens_per_s == pytest.approx(100, rel=0.02)
    assert stalled.elapsed_s == pytest.approx(33.0)
    assert stalled.tokens_per_s is not None
    assert stalled.tokens_per_s < 1
    assert stalled.tokens_per_s_average == before.tokens_per_s_average


def test_a_sign_of_life_records_memory_and_no_rate() -> None:
    recorder = MetricsRecorder(Clock())
    steady(recorder, 3)
    recorder.advance(update(16, 4.0, memory=None, process_bytes=5_000_000))
    traces = recorder.record().traces
    assert traces["process_bytes"][-1] == (16, 4.0, 5_000_000)
    assert traces["kv_held_bytes"][-1][1] < 4.0
    assert traces["tokens_per_s"][-1][1] < 4.0


def test_a_spike_of_memory_is_the_peak_and_stays_in_view_of_a_run_of_any_length() -> None:
    recorder = MetricsRecorder(Clock())
    recorder.start()
    for report in range(1, 30_001):
        recorder.advance(
            update(
                report,
                report / 20,
                num_new=1,
                first_token_s=0.05 if report == 1 else None,
                process_bytes=9_000 if report == 12_345 else 1_000,
            )
        )
    record = recorder.record()
    assert record.summary.process_peak_bytes == 9_000
    assert record.summary.process_bytes == 1_000
    assert (12_345, 12_345 / 20, 9_000) in record.traces["process_bytes"]
    assert all(len(points) <= MAX_POINTS for points in record.traces.values())
    assert record.sequence == 30_000


def test_figures_a_machine_does_not_have_make_no_trace() -> None:
    recorder = MetricsRecorder(Clock())
    steady(recorder, 3)
    assert set(TRACES) - set(recorder.record().traces) == {"device_process_bytes", "device_allocated_bytes"}
    recorder.advance(update(16, 4.0, memory=replace(MEMORY, device_process_bytes=9, device_allocated_bytes=4)))
    assert recorder.summary().device_process_bytes == 9
    assert recorder.record().traces["device_allocated_bytes"] == [(16, 4.0, 4)]


def test_followers_get_only_what_is_new_or_are_told_to_take_all() -> None:
    recorder = MetricsRecorder(Clock())
    steady(recorder, 9)
    assert recorder.samples_since(0) is not None
    sequence, samples = recorder.samples_since(7) or (0, [])
    assert sequence == 10
    assert [sample.tokens for sample in samples] == [36, 41, 46]
    assert recorder.samples_since(10) == (10, [])
    assert recorder.samples_since(11) is None
    steady(recorder, MAX_RECENT_SAMPLES + 5)
    assert recorder.samples_since(10) is None


def test_a_continued_reply_goes_on_in_tokens_seconds_and_average() -> None:
    clock = Clock()
    first = MetricsRecorder(clock)
    steady(first, 100, rate=100.0)
    first.end(7.0)
    second = MetricsRecorder(clock, first.record())
    steady(second, 100, rate=50.0, start_s=1.0)
    second.end(11.0)
    record = second.record()
    assert record.summary.num_tokens == 1002
    assert record.summary.elapsed_s == pytest.approx(7.0 + 11.0)
    assert record.summary.time_to_first_token_s == 1.0
    assert record.summary.tokens_per_s_average == pytest.approx(1000 / 15, rel=0.01)
    assert [span.tokens for span in record.prefills] == [0, 501]
    times = [time_s for _, time_s, _ in record.traces["process_bytes"]]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(18.0)


def test_a_record_survives_packing_and_reads_back_equal() -> None:
    recorder = MetricsRecorder(Clock())
    steady(recorder, 50)
    recorder.end(5.0)
    record = recorder.record()
    assert MetricsRecord.unpack(record.pack()) == record


def test_bytes_that_are_no_record_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes are no metrics record"):
        MetricsRecord.unpack(b"abc")


def test_csv_has_a_header_and_one_row_a_kept_moment() -> None:
    recorder = MetricsRecorder(Clock())
    steady(recorder, 4)
    rows = list(csv.DictReader(io.StringIO(recorder.record().to_csv())))
    assert [row["tokens"] for row in rows] == ["1", "6", "11", "16", "21"]
    assert rows[0]["tokens_per_s"] == ""
    assert float(rows[1]["tokens_per_s"]) == pytest.approx(100)
    assert {row["kv_full_bytes"] for row in rows} == {"5000"}
    assert set(rows[0]) == {"tokens", "time_s", *TRACES}


def test_the_summary_says_what_a_reply_in_circles_repeats_and_a_continued_one_begins_afresh() -> None:
    recorder = MetricsRecorder()
    recorder.start()
    recorder.advance(replace(update(800, 8.0), token_ids=tuple(range(20)) * 40))
    assert recorder.summary().loop_tokens == recorder.loop_tokens == 20
    assert MetricsRecorder(earlier=recorder.record()).summary().loop_tokens is None
