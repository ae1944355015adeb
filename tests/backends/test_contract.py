"""What every backend owes the app, asked of each of them on what a user would run: real weights, real tokenizers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backends import registry
from backends.contract import Backend, Cancelled
from backends.errors import BadRequestError, ModelFileError, RingsideError
from backends.events import Event, Finished, LoadProgress, PrefillProgress, TextChunk
from backends.requests import CachePolicy, GenerationRequest, LoadRequest, Message, Sampling

GREEDY = Sampling(temperature=0)
WARM = Sampling(temperature=1.0, top_k=40, repetition_penalty=1.1, seed=42)
WINDOW = 64
BACKENDS = list(registry.BACKENDS)
PARAGRAPH = "The tide came in over the sand, and the keeper of the light wrote down the hour and the wind. "


@dataclass(frozen=True)
class Reply:
    """What one generation gave."""

    events: list[Event]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextChunk))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token for event in self.events if isinstance(event, TextChunk) for token in event.token_ids)

    @property
    def finished(self) -> Finished:
        (finished,) = (event for event in self.events if isinstance(event, Finished))
        return finished

    @property
    def prefill(self) -> list[PrefillProgress]:
        return [event for event in self.events if isinstance(event, PrefillProgress)]


def ask(text: str, **fields: object) -> GenerationRequest:
    request = GenerationRequest((Message("user", text),), GREEDY, max_new_tokens=20, ignore_end=True)
    return replace(request, **fields)  # type: ignore[arg-type]


def run(backend: Backend, request: GenerationRequest, cancelled: Cancelled = lambda: False) -> Reply:
    return Reply(list(backend.generate(request, cancelled)))


def after(num_tokens: int) -> tuple[Cancelled, Callable[[Iterator[Event]], Reply]]:
    """Return a flag that is raised once that many tokens were seen, and what drives the generation that asks it."""
    seen: list[Event] = []

    def drive(events: Iterator[Event]) -> Reply:
        for event in events:
            seen.append(event)
        return Reply(seen)

    return lambda: sum(isinstance(event, TextChunk) for event in seen) >= num_tokens, drive


@pytest.fixture(scope="module", params=BACKENDS)
def load_request(request: pytest.FixtureRequest) -> LoadRequest:
    entry = registry.BACKENDS[request.param]
    if missing := entry.missing_libraries():
        pytest.skip(f"{', '.join(missing)} not installed")
    model = "" if entry.name == "echo" else str(request.getfixturevalue("smollm2_path"))
    options = {"rate": "max"} if entry.name == "echo" else {}
    return LoadRequest(entry.name, model, CachePolicy.RING, WINDOW, num_threads=1, device="cpu", options=options)


@pytest.fixture(scope="module")
def backend(
    load_request: LoadRequest, conversions: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    home = tmp_path_factory.mktemp("home")
    (home / "cache").symlink_to(conversions)
    steps: list[LoadProgress] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGSIDE_HOME", str(home))  # loading comes before the test's own home
        loaded = registry.load(load_request, steps.append)
    assert steps, "loading reports what it does"
    yield loaded
    loaded.close()


def test_a_reply_is_prefill_then_one_chunk_a_token_then_one_finished(backend: Backend) -> None:
    reply = run(backend, ask("Once upon a time", max_new_tokens=5))
    kinds = [type(event) for event in reply.events]
    first_chunk = kinds.index(TextChunk)
    assert set(kinds[:first_chunk]) == {PrefillProgress}
    assert kinds[-1] is Finished
    assert kinds.count(Finished) == 1
    assert len(reply.ids) == 5 == reply.finished.num_generated_tokens
    assert reply.finished.reason == "length"
    assert [len(event.token_ids) for event in reply.events if isinstance(event, TextChunk) and event.token_ids] == [
        1
    ] * 5


def test_prefill_progress_counts_up_to_the_whole_prompt(backend: Backend) -> None:
    reply = run(backend, ask(PARAGRAPH * 12, max_new_tokens=1))
    done = [progress.done_tokens for progress in reply.prefill]
    total = reply.finished.num_prompt_tokens
    assert done == sorted(done)
    assert len(done) > 2, "a long prompt is read in several chunks"
    assert done[-1] == total
    assert all(progress.total_tokens == total for progress in reply.prefill)
    assert all(progress.reused_tokens <= progress.done_tokens for progress in reply.prefill)


def test_every_event_and_every_figure_crosses_a_process_boundary(backend: Backend) -> None:
    values: list[object] = [*run(backend, ask("Hello", max_new_tokens=2)).events, backend.info, backend.memory()]
    assert pickle.loads(pickle.dumps(values)) == values


@pytest.mark.parametrize("num_tokens", [0, 1, 3])
def test_max_new_tokens_is_exact(backend: Backend, num_tokens: int) -> None:
    reply = run(backend, ask("Hello", max_new_tokens=num_tokens))
    assert len(reply.ids) == num_tokens
    assert reply.finished.reason == "length"


def test_text_is_whole_characters_whatever_the_prompt(backend: Backend) -> None:
    reply = run(backend, ask("Répète: 🌊👨‍👩‍👧 漢字 e\u0301 🇫🇷", sampling=WARM, max_new_tokens=24))
    for event in reply.events:
        if isinstance(event, TextChunk):
            assert event.text.encode("utf-8").decode("utf-8") == event.text


def test_greedy_text_does_not_depend_on_the_seed_or_on_what_ran_before(backend: Backend) -> None:
    first = run(backend, ask(PARAGRAPH, sampling=replace(GREEDY, seed=1)))
    run(backend, ask("Something else entirely, to fill the cache with other things."))
    run(backend, ask(PARAGRAPH * 8, max_new_tokens=3))
    again = run(backend, ask(PARAGRAPH, sampling=replace(GREEDY, seed=2)))
    assert again.ids == first.ids
    assert again.text == first.text


def test_a_seed_repeats_its_text_and_no_seed_is_another_each_time(backend: Backend) -> None:
    first = run(backend, ask("Hello there", sampling=WARM))
    run(backend, ask("In between", sampling=replace(WARM, seed=7)))
    again = run(backend, ask("Hello there", sampling=WARM))
    assert again.ids == first.ids
    assert first.finished.seed == again.finished.seed == 42
    unset = [run(backend, ask("Hello", sampling=replace(WARM, seed=None), max_new_tokens=1)) for _ in range(2)]
    assert unset[0].finished.seed != unset[1].finished.seed
    repeated = run(backend, ask("Hello there", sampling=replace(WARM, seed=first.finished.seed)))
    assert repeated.text == first.text


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "sampled"])
def test_seven_tokens_continued_by_thirteen_are_the_twenty_of_one_go(backend: Backend, sampling: Sampling) -> None:
    whole = run(backend, ask("Tell me about the sea.", sampling=sampling, max_new_tokens=20))
    part = run(backend, ask("Tell me about the sea.", sampling=sampling, max_new_tokens=7))
    messages = (Message("user", "Tell me about the sea."), Message("assistant", part.text, part.ids))
    rest = run(backend, ask("", messages=messages, sampling=sampling, max_new_tokens=13))
    assert part.ids + rest.ids == whole.ids
    assert part.text + rest.text == whole.text


def test_a_new_turn_after_a_reply_cut_short_is_answered(backend: Backend) -> None:
    part = run(backend, ask("Tell me about the sea.", max_new_tokens=7))
    messages = (
        Message("system", "Answer in one sentence."),
        Message("user", "Tell me about the sea."),
        Message("assistant", part.text, part.ids),
        Message("user", "And the sky?"),
    )
    reply = run(backend, ask("", messages=messages))
    assert len(reply.ids) == 20
    assert reply.finished.num_prompt_tokens > part.finished.num_prompt_tokens


def test_cancelling_ends_within_one_token_and_keeps_the_text(backend: Backend) -> None:
    cancelled, drive = after(4)
    reply = drive(backend.generate(ask("Hello", max_new_tokens=None), cancelled))
    assert reply.finished.reason == "cancelled"
    assert 4 <= len(reply.ids) <= 5
    assert reply.text == run(backend, ask("Hello", max_new_tokens=len(reply.ids))).text


def test_cancelling_during_prefill_reads_no_further(backend: Backend) -> None:
    events: list[Event] = []
    for event in backend.generate(ask(PARAGRAPH * 40), lambda: len(events) >= 2):
        events.append(event)
    reply = Reply(events)
    assert reply.finished.reason == "cancelled"
    assert reply.ids == ()
    assert reply.prefill[-1].done_tokens < reply.finished.num_prompt_tokens
    assert run(backend, ask("Hello", max_new_tokens=3)).finished.reason == "length"


def test_an_iterator_closed_early_leaves_a_backend_that_takes_the_next_request(backend: Backend) -> None:
    right = run(backend, ask("Hello there", max_new_tokens=6))
    events = backend.generate(ask("Hello there", max_new_tokens=None), lambda: False)
    for event in events:
        if isinstance(event, TextChunk):
            break
    events.close()  # type: ignore[attr-defined]
    assert run(backend, ask("Hello there", max_new_tokens=6)).ids == right.ids


def test_stop_strings_cut_the_text_at_the_earliest_and_no_part_leaks(backend: Backend) -> None:
    whole = run(backend, ask(PARAGRAPH, sampling=WARM))
    middle = len(whole.text) // 2
    stops = (whole.text[middle : middle + 5], whole.text[middle + 2 : middle + 9], "never in the text \0")
    reply = run(backend, ask(PARAGRAPH, sampling=WARM, stop=stops))
    assert reply.text == whole.text[: min(whole.text.find(stop) for stop in stops[:2])]
    assert reply.finished.reason == "stop"
    assert len(reply.ids) <= len(whole.ids)


def test_a_stop_string_that_never_comes_changes_nothing(backend: Backend) -> None:
    whole = run(backend, ask(PARAGRAPH))
    almost = whole.text[-4:] + " that is not there"
    reply = run(backend, ask(PARAGRAPH, stop=(almost,)))
    assert reply.text == whole.text
    assert reply.finished.reason == "length"


def test_a_prompt_longer_than_the_window_is_read_and_memory_stays_bounded(backend: Backend) -> None:
    reply = run(backend, ask(PARAGRAPH * 40, max_new_tokens=12))
    figures = backend.memory()
    assert reply.finished.num_prompt_tokens > 3 * max(figures.window_tokens, WINDOW)
    assert len(reply.ids) == 12
    assert figures.kv_held_bytes <= figures.kv_allocated_bytes < figures.kv_full_bytes
    assert figures.window_filled_tokens <= figures.window_tokens
    allocated = figures.kv_allocated_bytes
    run(backend, ask(PARAGRAPH * 44, max_new_tokens=12))
    assert backend.memory().kv_allocated_bytes == allocated


def test_figures_follow_the_sequence(backend: Backend) -> None:
    reply = run(backend, ask("Hello there", max_new_tokens=8))
    figures = backend.memory()
    num_tokens = reply.finished.num_prompt_tokens + 8
    assert figures.position_tokens in (num_tokens - 1, num_tokens), "the last token of a reply may wait for the next"
    assert figures.kv_full_bytes == figures.position_tokens * backend.info.kv_bytes_per_token_full
    assert 0 < figures.kv_held_bytes <= figures.kv_full_bytes
    assert figures.window_filled_tokens == min(figures.position_tokens, figures.window_tokens)
    assert figures.weights_bytes == backend.info.weights_bytes


@pytest.mark.parametrize("messages", [(), (Message("user", ""),)], ids=["no messages", "empty text"])
def test_an_empty_prompt_is_answered_or_refused_in_one_sentence_and_the_next_request_works(
    backend: Backend, messages: tuple[Message, ...]
) -> None:
    refusal, num_tokens = "", 0
    try:
        num_tokens = len(run(backend, ask("", messages=messages, max_new_tokens=3)).ids)
    except BadRequestError as error:
        refusal = error.message
    assert num_tokens == 3 or "empty" in refusal
    assert len(run(backend, ask("Hello", max_new_tokens=3)).ids) == 3


def test_what_was_loaded_is_described(backend: Backend, load_request: LoadRequest) -> None:
    info = backend.info
    assert info.policy is load_request.policy
    assert info.name
    assert info.architecture
    assert info.device == "cpu"
    assert info.window >= WINDOW
    assert info.sinks == 4
    assert info.num_sliding_layers + info.num_full_layers > 0
    assert info.vocab_size > 1
    assert info.kv_bytes_per_token_full > 0
    assert info.has_chat_template
    assert all(notice.endswith(".") for notice in info.notices)


def test_ignoring_the_end_writes_on_where_the_model_would_stop(backend: Backend, load_request: LoadRequest) -> None:
    if load_request.backend == "echo":
        backend = registry.load(replace(load_request, options={"rate": "max", "end_after": "9"}), lambda step: None)
    request = ask("Say hi.", max_new_tokens=200, ignore_end=False)
    ended = run(backend, request)
    assert ended.finished.reason == "stop"
    num_tokens = len(ended.ids)
    assert 0 < num_tokens < 200
    endless = run(backend, replace(request, ignore_end=True, max_new_tokens=num_tokens + 5))
    assert endless.ids[:num_tokens] == ended.ids
    assert len(endless.ids) == num_tokens + 5


def test_a_window_below_one_is_refused(load_request: LoadRequest) -> None:
    with pytest.raises(RingsideError, match="window of 0"):
        registry.load(replace(load_request, window=0), lambda step: None)


@pytest.mark.parametrize("fault", ["missing", "truncated", "empty", "not a model", "git-lfs pointer"])
def test_a_bad_model_file_is_named_and_kills_nothing(load_request: LoadRequest, tmp_path: Path, fault: str) -> None:
    if load_request.backend == "echo":
        pytest.skip("the echo backend reads no file")
    path = tmp_path / "bad.gguf"
    if fault == "truncated":
        with Path(load_request.model).open("rb") as whole:
            path.write_bytes(whole.read(5_000_000))
    elif fault != "missing":
        path.write_bytes(
            {"empty": b"", "not a model": b"\0" * 4_096}.get(fault, b"version https://git-lfs.github.com/spec/v1\n")
        )
    with pytest.raises(ModelFileError, match=r"bad\.gguf"):
        registry.load(replace(load_request, model=str(path)), lambda step: None)
