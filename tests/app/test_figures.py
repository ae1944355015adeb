from __future__ import annotations

import pytest

from app.figures import byte_count, duration, figures_line
from app.metrics import Summary


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1536, "1.5 KiB"),
        (1000 * 1024, "1,000 KiB"),
        (253_113_024, "241 MiB"),
        (3 * 2**30, "3.0 GiB"),
        (5000 * 2**40, "5,000 TiB"),
    ],
)
def test_bytes_have_a_binary_unit(num_bytes: int, words: str) -> None:
    assert byte_count(num_bytes) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.424, "0.42 s"), (12, "12 s"), (185, "3 min 05 s"), (36_120, "10 h 02 min")],
)
def test_times_are_written_as_people_write_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_line_of_figures_shows_the_cache_beside_what_a_full_one_would_hold() -> None:
    summary = Summary(
        num_tokens=12_345,
        tokens_per_s=38.26,
        tokens_per_s_average=37.0,
        time_to_first_token_s=0.5,
        elapsed_s=330,
        window_filled_tokens=516,
        window_tokens=516,
        window=512,
        kv_held_bytes=10 * 2**20,
        kv_full_bytes=240 * 2**20,
        process_bytes=361 * 2**20,
    )
    assert figures_line(summary) == (
        "12,345 tokens · 38.3 tokens/s · average 37.0 · first after 0.50 s · window 512/512 · "
        "KV 10.0 MiB (full 240 MiB) · memory 361 MiB · 5 min 30 s"
    )
