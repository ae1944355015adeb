from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends import echo_text
from backends.contract import Backend
from backends.echo import EchoBackend, load
from backends.echo_cache import ROW_BYTES, EchoCache
from backends.echo_options import EchoOptions
from backends.errors import BadRequestError, ModelFileError
from backends.events import Event, Finished, LoadProgress, PrefillProgress, TextChunk
from backends.requests import CachePolicy, GenerationRequest, LoadRequest, Message, Sampling


def echo(window: int = 8, policy: CachePolicy = CachePolicy.RING, sinks: int | None = 2, **options: str) -> Backend:
    request = LoadRequest("echo", "", policy, window, sinks, options={"rate": "max", **options})
    return load(request, lambda progress: None)


def ask(text: str = "Tell me of rivers", *after: Message, **fields: object) -> GenerationRequest:
    fields.setdefault("sampling", Sampling(seed=7))
    return GenerationRequest((Message("user", text), *after), **fields)  # type: ignore[arg-type]


def run(backend: Backend, request: GenerationRequest, cancelled: Callable[[], bool] = lambda: False) -> list[Event]:
    return list(backend.generate(request, cancelled))


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextChunk))


def ids_of(events: list[Event]) -> tuple[int, ...]:
    return tuple(each for event in events if isinstance(event, TextChunk) for each in event.token_ids)


@given(st.text(max_size=200))
def test_pieces_put_together_are_the_text(text: str) -> None:
    assert "".join(echo_text.pieces_of(text)) == text


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**63), st.integers(0, 600))
def test_a_document_taken_up_at_any_piece_goes_on_as_it_would_have(seed: int, start: int) -> None:
    def first(pieces: Iterator[str], number: int) -> list[str]:
        return [next(pieces) for _ in range(number)]

    assert first(echo_text.document(seed, 0), start + 40)[start:] == first(echo_text.document(seed, start), 40)


def test_a_document_has_what_long_markdown_has() -> None:
    pieces = echo_text.document(1, 0)
    text = "".join(next(pieces) for _ in range(1500))
    for mark in ("## 1. ", "```python\n", "| name |", "- ", "1. ", "> ", "$$", "**", "日本語", "👩‍👩‍👧", "\t\t"):
        assert mark in text


def test_the_prompt_comes_back_word_for_word_and_then_ends() -> None:
    events = run(echo(text="prompt"), ask("  Hello,\tworld\n\nof  rings "))
    assert text_of(events) == "  Hello,\tworld\n\nof  rings "
    assert events[-1] == Finished("stop", 7, 6, 6)


def test_keep_writing_repeats_for_ever_and_the_limit_ends_it() -> None:
    events = run(echo(text="prompt"), ask("ab", max_new_tokens=7, ignore_end=True))
    assert text_of(events) == "ab" * 7
    assert events[-1] == Finished("length", 7, 1, 7)


def test_a_script_is_said_piece_by_piece_one_token_each() -> None:
    pieces = ["DEF", "", "G", "👍"]
    events = run(echo(text="script", script=json.dumps(pieces)), ask())
    assert [event.text for event in events if isinstance(event, TextChunk)] == pieces
    assert len(ids_of(events)) == 4


def test_stop_strings_never_leak_a_part() -> None:
    backend = echo(text="script", script=json.dumps(["Hi ", "DEF", "G", "HI", "J", "more"]))
    events = run(backend, ask(stop=("DEFGHIJ",)))
    assert text_of(events) == "Hi "
    assert events[-1] == Finished("stop", 7, 4, 5)


def test_text_held_as_a_possible_stop_string_comes_out_at_the_end() -> None:
    events = run(echo(text="script", script=json.dumps(["ab", "DE"])), ask(stop=("DEF",)))
    assert text_of(events) == "abDE"


def test_seven_tokens_and_thirteen_more_are_twenty_in_one_go() -> None:
    backend = echo()
    whole = run(backend, ask(max_new_tokens=20))
    start = run(backend, ask(max_new_tokens=7))
    reply = Message("assistant", text_of(start), ids_of(start))
    rest = run(backend, ask("Tell me of rivers", reply, max_new_tokens=13))
    assert text_of(start) + text_of(rest) == text_of(whole)
    assert ids_of(start) + ids_of(rest) == ids_of(whole)


def test_a_seed_repeats_its_text_and_no_seed_does_not() -> None:
    backend = echo()
    fixed = [text_of(run(backend, ask(max_new_tokens=60))) for _ in range(2)]
    free = [run(backend, ask(max_new_tokens=60, sampling=Sampling())) for _ in range(2)]
    assert fixed[0] == fixed[1]
    assert text_of(free[0]) != text_of(free[1])
    last = free[0][-1]
    assert isinstance(last, Finished)
    assert text_of(run(backend, ask(max_new_tokens=60, sampling=Sampling(seed=last.seed)))) == text_of(free[0])


def test_cancelling_ends_within_one_token() -> None:
    backend, events = echo(), list[Event]()
    for event in backend.generate(ask(), lambda: len(events) >= 10):
        events.append(event)
    assert len(events) == 11
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "cancelled"


def test_cancelling_ends_prefill_within_one_chunk() -> None:
    events: list[Event] = []
    backend = echo()
    for event in backend.generate(ask("word " * 1000), lambda: len(events) >= 3):
        events.append(event)
    assert [type(event) for event in events] == [PrefillProgress] * 3 + [Finished]
    assert isinstance(events[-1], Finished)
    assert (events[-1].reason, events[-1].num_generated_tokens) == ("cancelled", 0)


def test_tokens_come_at_the_rate_asked_for() -> None:
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    options = EchoOptions.parse({"rate": "20", "prefill_rate": "100"})
    backend = EchoBackend(LoadRequest("echo", ""), options, lambda: now_s[0], sleep)
    events = list(backend.generate(ask("word " * 50, max_new_tokens=40), lambda: False))
    assert len(ids_of(events)) == 40
    assert now_s[0] == pytest.approx(51 / 100 + 40 / 20)


@pytest.mark.parametrize(("kind", "error"), [("runtime", RuntimeError), ("memory", MemoryError)])
def test_a_planted_fault_comes_once_and_the_next_request_works(kind: str, error: type[Exception]) -> None:
    backend, seen = echo(fail_at="5", fail_kind=kind), list[Event]()
    with pytest.raises(error):
        seen.extend(backend.generate(ask(), lambda: False))
    assert len(ids_of(seen)) == 4
    assert run(backend, ask(max_new_tokens=9))[-1] == Finished("length", 7, 4, 9)


def test_a_fault_during_prefill_comes_before_any_token() -> None:
    seen: list[Event] = []
    with pytest.raises(MemoryError):
        seen.extend(echo(fail_at="0", fail_kind="memory").generate(ask(), lambda: False))
    assert ids_of(seen) == ()


def test_a_stall_lasts_until_cancelled() -> None:
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    options = EchoOptions.parse({"rate": "max", "stall_at": "3"})
    backend = EchoBackend(LoadRequest("echo", ""), options, lambda: now_s[0], sleep)
    events = list(backend.generate(ask(), lambda: now_s[0] > 60))
    assert len(ids_of(events)) == 2
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "cancelled"


@pytest.mark.parametrize("policy", list(CachePolicy))
@pytest.mark.parametrize("num_tokens", [0, 1, 7, 8, 9, 100])
def test_figures_are_those_of_the_rows_really_kept(policy: CachePolicy, num_tokens: int) -> None:
    window, sinks = 8, 2
    cache = EchoCache(policy, window, sinks)
    for number in range(num_tokens):
        cache.append(f"token {number}")
    kept = [_rows(bytes(layer.rows)) for layer in cache._layers]
    figures = cache.figures()
    bounded = [*range(min(sinks, num_tokens)), *range(max(sinks, num_tokens - window), num_tokens)]
    sliding = list(range(max(0, num_tokens - window), num_tokens))
    everything = list(range(num_tokens))
    expected = {
        CachePolicy.RING: [sliding, bounded],
        CachePolicy.AS_TRAINED: [sliding, everything],
        CachePolicy.FULL: [everything, everything],
    }[policy]
    assert kept == [{f"token {number}" for number in layer} for layer in expected]
    assert figures.kv_held_bytes == ROW_BYTES * sum(len(layer) for layer in expected)
    assert figures.kv_allocated_bytes == sum(len(layer.rows) for layer in cache._layers)
    assert figures.kv_full_bytes == 2 * ROW_BYTES * num_tokens
    assert figures.position_tokens == num_tokens


def test_memory_under_a_ring_is_flat_and_a_full_cache_grows() -> None:
    ring, full = echo(window=16), echo(window=16, policy=CachePolicy.FULL)
    held: dict[str, list[int]] = {"ring": [], "full": []}
    for name, backend in (("ring", ring), ("full", full)):
        for num_tokens in (100, 200, 400):
            run(backend, ask(max_new_tokens=num_tokens))
            held[name].append(backend.memory().kv_held_bytes)
    assert len(set(held["ring"])) == 1
    assert held["full"][0] < held["full"][1] < held["full"][2]


def test_sinks_of_none_pin_the_whole_system_prompt() -> None:
    backend = echo(sinks=None)
    system = Message("system", "You write about rivers.")
    run(backend, GenerationRequest((system, Message("user", "Go on")), max_new_tokens=5))
    assert backend.info.sinks == len(echo_text.pieces_of(system.text))


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(BadRequestError, match=r"The prompt is empty. Write something first."):
        run(echo(), GenerationRequest((Message("user", ""),)))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"speed": "9"}, "no option 'speed'"),
        ({"rate": "-1"}, "Option 'rate' of the echo backend cannot be '-1'. Give tokens a second above 0"),
        ({"rate": "fast"}, "Option 'rate'"),
        ({"fail_at": "-2"}, "Option 'fail_at'"),
        ({"fail_kind": "gently"}, "Choose from runtime, memory, device, abort, kill."),
        ({"script": "[1]"}, "Give a JSON list of texts"),
    ],
)
def test_an_option_that_cannot_be_is_named(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        load(LoadRequest("echo", "", options=options), lambda progress: None)
    assert sentence in str(caught.value)


def test_a_window_below_one_is_refused() -> None:
    with pytest.raises(BadRequestError, match="A window of 0 tokens is below 1"):
        echo(window=0)


def test_loading_reports_progress_and_can_be_made_to_fail() -> None:
    steps: list[LoadProgress] = []
    load(LoadRequest("echo", ""), steps.append)
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].done == steps[-1].total
    with pytest.raises(ModelFileError, match=r"The file is cut short."):
        echo(load_error="The file is cut short.")


def _rows(buffer: bytes) -> set[str]:
    rows = (buffer[start : start + ROW_BYTES].rstrip(b"\0") for start in range(0, len(buffer), ROW_BYTES))
    return {row.decode() for row in rows if row}
