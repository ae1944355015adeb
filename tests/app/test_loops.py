"""Real kinds of text, as ids of a word-and-sign tokenizer: what loops is found, what only repeats its form is not."""

from __future__ import annotations

import inspect
import itertools
import json
import random
import re
import zlib

import pytest

from app import loops, transcript
from app.loops import MAX_PERIOD, MIN_RUN_TOKENS, WINDOW_TOKENS, LoopDetector

PROSE = """The river ran slow past the mill that evening, and nobody on the bank could say when the lamps had gone out.
She counted the barges, lost count, and began again from the bridge; there were always more of them in the dark."""


def ids(text: str) -> list[int]:
    """Return ids as subword tokenizers give them: words in pieces of up to five letters, signs and spaces apart."""
    return [zlib.crc32(piece.encode()) for piece in re.findall(r" ?[^\W\d_]{1,5}|\d|\n| +|[^\w\s]|_", text)]


def found_at(token_ids: list[int]) -> int | None:
    """Return after how many tokens a loop is found."""
    detector = LoopDetector()
    for number, token_id in enumerate(token_ids, start=1):
        detector.push([token_id])
        if number % 16 == 0 and detector.period_tokens is not None:
            return number
    return None


def rows(number: int) -> random.Random:
    return random.Random(number)


def csv() -> str:
    draw = rows(1)
    return "\n".join(f"{n},{draw.choice(['open', 'closed'])},{draw.randint(0, 9)},EUR,0.00" for n in range(400))


def markdown_table() -> str:
    draw = rows(2)
    lines = [f"| {draw.choice('abc')} | {draw.randint(0, 99)} | yes | - |" for _ in range(300)]
    return "| name | count | done | note |\n|---|---|---|---|\n" + "\n".join(lines)


def truth_table() -> str:
    lines = [
        "| " + " | ".join(map(str, bits)) + f" | {bits[0] & bits[1]} |" for bits in itertools.product((0, 1), repeat=7)
    ]
    return "\n".join(lines)


def zeros() -> str:
    return (
        "matrix = [\n"
        + "    ["
        + ", ".join(["0"] * 28)
        + "],\n" * 1
        + ("    [" + ", ".join(["0"] * 28) + "],\n") * 27
        + "]"
    )


LEGITIMATE = {
    "python code": inspect.getsource(transcript) + inspect.getsource(loops),
    "csv": csv(),
    "markdown table": markdown_table(),
    "truth table": truth_table(),
    "numbered list": "\n".join(f"{n}. Check the gate and the lamp of house {n}." for n in range(1, 300)),
    "checklist": "- [ ] \n" * 300,
    "matrix of zeros": zeros(),
    "empty form": ("|   |   |   |   |   |   |\n" * 60),
    "json rows": json.dumps([{"id": n, "name": f"user{n}", "active": True, "tags": []} for n in range(200)], indent=2),
    "sql": "\n".join(
        f"INSERT INTO users (id, name, mail) VALUES ({n}, 'user{n}', 'u{n}@example.com');" for n in range(200)
    ),
    "html table": "\n".join(f"<tr><td class='n'>{n}</td><td class='s'>{n * n}</td></tr>" for n in range(200)),
    "hex dump": "\n".join(f"{n * 16:08x}: {'00 ' * 16}" for n in range(200)),
    "a rule of signs": "=" * 1_500,
    "assertions": "\n".join(f"    assert square({n}) == {n * n}" for n in range(300)),
    "prose": " ".join(rows(3).choices(PROSE.split(), k=5_000)),
}


@pytest.mark.parametrize("kind", LEGITIMATE)
def test_code_tables_and_lists_are_no_loops(kind: str) -> None:
    token_ids = ids(LEGITIMATE[kind])
    assert len(token_ids) > MIN_RUN_TOKENS
    assert found_at(token_ids) is None


@pytest.mark.parametrize("kind", ["prose", "csv", "python code"])
@pytest.mark.parametrize("num_words", [7, 30, 150, 400])
def test_a_text_that_goes_round_in_circles_is_found_soon(kind: str, num_words: int) -> None:
    before = ids(LEGITIMATE[kind])[:1_500]
    period = ids(" ".join(rows(num_words).choices([f"word{n}" for n in range(400)], k=num_words)))[:MAX_PERIOD]
    at = found_at(before + period * (8_000 // len(period)))
    assert at is not None
    assert at - len(before) <= max(MIN_RUN_TOKENS, 5 * len(period)) + len(period) + 16


def test_one_word_for_ever_is_found_too_but_later() -> None:
    at = found_at(ids("done " * 6_000))
    assert at is not None
    assert 4_000 < at < 4_200


def test_a_loop_with_a_rare_slip_stays_one() -> None:
    period = ids(PROSE)
    slips = [*period]
    slips[5] = 7
    assert found_at((period * 4 + slips) * 8) is not None


def test_a_loop_that_is_left_is_over() -> None:
    detector = LoopDetector()
    detector.push(ids(PROSE) * 40)
    assert detector.period_tokens == len(ids(PROSE))
    assert detector.run_tokens >= 39 * len(ids(PROSE))
    detector.push(range(2 * detector.run_tokens // 64))
    after = detector
    assert after.period_tokens is None
    assert after.run_tokens == 0


def test_the_share_of_distinct_grams_is_that_of_the_window() -> None:
    detector = LoopDetector()
    detector.push([1, 2, 3])
    assert detector.distinct_share is None
    detector.push(range(4, 4_000))
    assert detector.distinct_share == 1.0
    detector.push([1, 2] * WINDOW_TOKENS)
    assert detector.distinct_share == 2 / WINDOW_TOKENS
    token_ids = [random.Random(5).randint(0, 2) for _ in range(1)] + [rows(n).randint(0, 3) for n in range(2_000)]
    detector.push(token_ids)
    last = [tuple(token_ids[n : n + 4]) for n in range(len(token_ids) - WINDOW_TOKENS - 3, len(token_ids) - 3)]
    assert detector.distinct_share == len(set(last)) / WINDOW_TOKENS


def test_it_matters_not_how_the_tokens_come() -> None:
    token_ids = ids(PROSE) * 20
    one, other = LoopDetector(), LoopDetector()
    one.push(token_ids)
    for start in range(0, len(token_ids), 7):
        other.push(token_ids[start : start + 7])
    assert (one.run_tokens, one.period_tokens, one.distinct_share) == (
        other.run_tokens,
        other.period_tokens,
        other.distinct_share,
    )


def test_what_is_kept_does_not_grow_with_the_reply() -> None:
    detector = LoopDetector()
    detector.push(rows(9).choices(range(50_000), k=20_000))
    assert len(detector._counts) <= WINDOW_TOKENS
    assert len(detector._grams) == WINDOW_TOKENS
    assert detector._ids.size == 2 * MAX_PERIOD
