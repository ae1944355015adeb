"""Several replies in the rows of one cache: each is, id by id, what it would have been alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.contract import DraftsTogether
from backends.errors import BadRequestError
from backends.events import Event, Finished, MemoryFigures, PrefillProgress, TextChunk
from backends.requests import CachePolicy, GenerationRequest, Sampling
from backends.ring import memory
from backends.ring.generation import RingBackend
from backends.ring.scoring import token_losses
from models.model_files import ModelFiles
from models.sizing import kv_bytes
from models.vocabulary import build_tokenizer
from tests.backends.test_ring import FIRST, LONGROPE, WILD, WINDOW, as_reply, ask, ids_of, open_backend, reused, run
from tests.backends.tiny_gguf import write_tiny_gguf
from tests.models.stock_folders import save_stock_folder, stock_model
from tests.models.tiny_models import build, save_folder
from tests.models.tiny_tokenizers import byte_level_vocabulary

SEEDS = (5, 6, 7, 8)
PAST_THREE_WRAPS = 4 * WINDOW + 3


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sliding (window 8) and full layers take turns; one token a byte."""
    return write_tiny_gguf(tmp_path_factory.mktemp("drafts") / "tiny.gguf", sliding_window=WINDOW, sliding_pattern=2)


def draft(
    backend: RingBackend,
    request: GenerationRequest,
    seeds: Sequence[int] = SEEDS,
    cancelled: Callable[[int], bool] = lambda row: False,
) -> list[list[Event]]:
    """The events of every row."""
    rows: list[list[Event]] = [[] for _ in seeds]
    for row, event in backend.generate_together(request, seeds, cancelled):
        rows[row].append(event)
    return rows


def alone(backend: RingBackend, request: GenerationRequest, seed: int) -> list[Event]:
    return run(backend, replace(request, sampling=replace(request.sampling, seed=seed)))


def ending(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1
    return events[-1]


@pytest.mark.parametrize("policy", CachePolicy)
@pytest.mark.parametrize("kv_type", ["auto", "int8"])
def test_each_row_is_its_solo_run_past_three_wraps(model_path: Path, policy: CachePolicy, kv_type: Any) -> None:
    backend = open_backend(model_path, policy, kv_type=kv_type)
    assert isinstance(backend, DraftsTogether)
    assert backend.info.drafts_together
    request = ask(FIRST, num_tokens=PAST_THREE_WRAPS)
    rows = draft(backend, request)
    assert len({ids_of(events) for events in rows}) == len(SEEDS), "seeds must differ for this to say anything"
    for seed, events in zip(SEEDS, rows, strict=True):
        solo = alone(open_backend(model_path, policy, kv_type=kv_type), request, seed)
        assert [event for event in events if isinstance(event, TextChunk)] == [
            event for event in solo if isinstance(event, TextChunk)
        ]
        assert ending(events) == ending(solo)


def test_rows_that_end_early_are_silent_and_leave_the_others_as_they_were(model_path: Path) -> None:
    """Of many seeds some draw the token that ends a text within a few tokens, others go on to the limit."""
    seeds = tuple(range(8))
    backend = open_backend(model_path)
    hotter = replace(WILD, temperature=3.0, logit_bias=((2, 9.0),))
    request = ask(FIRST, num_tokens=PAST_THREE_WRAPS, ignore_end=False, sampling=hotter)
    rows = draft(backend, request, seeds)
    solos = [alone(open_backend(model_path), request, seed) for seed in seeds]
    assert [ids_of(events) for events in rows] == [ids_of(events) for events in solos]
    assert [ending(events) for events in rows] == [ending(events) for events in solos]
    assert len({len(ids_of(events)) for events in rows}) > 4, "the ends must differ for this to say anything"
    assert {ending(events).reason for events in rows} == {"stop", "length"}


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.5, "repetition_window": 12},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5, "repetition_window": None},
        {"dry_multiplier": 2.0, "dry_allowed_length": 1},
        {"xtc_probability": 0.5, "xtc_threshold": 0.02},
        {"mirostat_tau": 3.0, "mirostat_eta": 0.3},
        {"top_k": 20, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.95},
        {"temperature": 0.0},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_samplers_remember_is_each_rows_own(model_path: Path, settings: dict[str, Any]) -> None:
    request = ask(FIRST, num_tokens=PAST_THREE_WRAPS, sampling=replace(WILD, **settings))
    backend = open_backend(model_path)
    rows = draft(backend, request)
    for seed, events in zip(SEEDS, rows, strict=True):
        assert ids_of(events) == ids_of(alone(backend, request, seed))


def test_each_row_follows_a_grammar_from_where_it_stands(model_path: Path) -> None:
    pytest.importorskip("llguidance")
    request = ask(FIRST, num_tokens=20, grammar="/(ab|cde)+x?/", sampling=replace(WILD, temperature=2.0))
    backend = open_backend(model_path)
    rows = draft(backend, request)
    assert len({ids_of(events) for events in rows}) > 1
    for seed, events in zip(SEEDS, rows, strict=True):
        assert ids_of(events) == ids_of(alone(backend, request, seed))


def test_rows_stop_inside_the_reasoning_only_where_told_to(model_path: Path) -> None:
    thinking = ask(FIRST + "<think>", num_tokens=40, raw=True, stop=tuple("abcdefghijklmnopqrstuvwxyz"))
    backend = open_backend(model_path)
    waiting = draft(backend, thinking)
    assert {ending(events).reason for events in waiting} == {"length"}
    told = replace(thinking, stop_in_reasoning=True)
    rows = draft(backend, told)
    assert "stop" in {ending(events).reason for events in rows}
    for seed, events in zip(SEEDS, rows, strict=True):
        assert ids_of(events) == ids_of(alone(backend, told, seed))


def test_nan_in_one_row_ends_that_row_and_never_shows_in_another(model_path: Path) -> None:
    backend = open_backend(model_path)
    request = ask(FIRST, num_tokens=PAST_THREE_WRAPS)
    rows: list[list[Event]] = [[] for _ in SEEDS]
    for row, event in backend.generate_together(request, SEEDS, lambda row: False):
        rows[row].append(event)
        if row == 0 and len(ids_of(rows[0])) == 10 and not isinstance(event, Finished):
            assert backend._drafts is not None
            for layer in backend._drafts.cache.layers:
                for tensor in layer.tensors:
                    tensor[1] = math.nan
    assert ending(rows[1]).reason == "error"
    assert "not a number" in ending(rows[1]).message
    for row in (0, 2, 3):
        assert ids_of(rows[row]) == ids_of(alone(open_backend(model_path), request, SEEDS[row]))


def test_the_prompt_is_read_once_for_all(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = open_backend(model_path)
    calls: list[tuple[int, ...]] = []
    feed = type(backend._model).__call__

    def counted(self: Any, tokens: Any, *args: Any, **named: Any) -> Any:
        calls.append(tuple(tokens.shape))
        return feed(self, tokens, *args, **named)

    monkeypatch.setattr(type(backend._model), "__call__", counted)
    rows = draft(backend, ask(FIRST, num_tokens=3))
    assert [num_rows for num_rows, _ in calls] == [1] * len(calls)
    assert sum(num_tokens for _, num_tokens in calls) == len(FIRST)
    for events in rows:
        assert isinstance(events[0], PrefillProgress)
        assert reused(events) == 0


@pytest.mark.parametrize("picked", [0, 3])
@pytest.mark.parametrize("policy", CachePolicy)
def test_any_variant_goes_on_from_what_its_row_held(model_path: Path, policy: CachePolicy, picked: int) -> None:
    backend = open_backend(model_path, policy)
    rows = draft(backend, ask(FIRST, num_tokens=3 * WINDOW))
    request = ask(FIRST, as_reply(rows[picked]), "and-on", num_tokens=WINDOW)
    went_on = run(backend, request)
    assert reused(went_on) == 1 + len(FIRST) + 3 * WINDOW - 1  # the last token of a reply was not fed
    assert ids_of(went_on) == ids_of(run(open_backend(model_path, policy), request))


def test_drafting_again_takes_up_the_prompt(model_path: Path) -> None:
    backend = open_backend(model_path)
    first = draft(backend, ask(FIRST, num_tokens=3 * WINDOW))
    again = draft(backend, ask(FIRST, num_tokens=3 * WINDOW))
    assert [ids_of(events) for events in again] == [ids_of(events) for events in first]
    assert [reused(events) for events in again] == [len(FIRST)] * len(SEEDS)


def test_rows_are_stopped_one_by_one_or_all(model_path: Path) -> None:
    backend = open_backend(model_path)
    request = replace(ask(FIRST), max_new_tokens=None)
    rows: list[list[Event]] = [[] for _ in SEEDS]
    for row, event in backend.generate_together(request, SEEDS, lambda row: len(ids_of(rows[row])) >= 5 + 10 * row):
        rows[row].append(event)
    assert {ending(events).reason for events in rows} == {"cancelled"}
    for row, events in enumerate(rows):
        assert len(ids_of(events)) == 5 + 10 * row
        solo = ids_of(alone(open_backend(model_path), replace(request, max_new_tokens=60), SEEDS[row]))
        assert ids_of(events) == solo[: len(ids_of(events))]
    before = draft(backend, request, cancelled=lambda row: True)
    assert [ending(events).num_generated_tokens for events in before] == [0] * len(SEEDS)


@pytest.mark.parametrize("policy", [CachePolicy.RING, CachePolicy.AS_TRAINED])
def test_bytes_are_those_of_all_rows_to_the_formula(model_path: Path, policy: CachePolicy) -> None:
    backend = open_backend(model_path, policy)
    config = ModelFiles.open(model_path).config()
    seen: list[MemoryFigures] = []
    for row, event in backend.generate_together(ask(FIRST, num_tokens=PAST_THREE_WRAPS), SEEDS, lambda row: False):
        if row == 0 and isinstance(event, TextChunk):
            seen.append(backend.memory())
    last = seen[-1]
    assert (last.num_rows, last.position_tokens) == (len(SEEDS), len(FIRST) + PAST_THREE_WRAPS)
    assert last.kv_full_bytes == len(SEEDS) * last.position_tokens * backend.info.kv_bytes_per_token_full
    if policy is CachePolicy.RING:
        row_bytes = kv_bytes(config, policy, WINDOW, 2, last.position_tokens, 4)
        assert last.kv_held_bytes == len(SEEDS) * row_bytes
        assert {figures.kv_allocated_bytes for figures in seen} == {(len(SEEDS) + 1) * row_bytes}
    assert backend.memory().num_rows == 1, "the rows are gone with the last reply"


def test_more_rows_than_fit_are_refused_with_both_numbers(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = open_backend(model_path)
    run(backend, ask(FIRST, num_tokens=1))
    free_bytes = 3 * backend.memory().kv_allocated_bytes
    monkeypatch.setattr(memory, "free_bytes", lambda device: free_bytes)
    with pytest.raises(BadRequestError, match="of 4 variants"):
        draft(backend, ask(FIRST))
    assert len(draft(backend, ask(FIRST), seeds=(1, 2))) == 2


def test_rows_read_all_again_where_longrope_changes_its_frequencies(tmp_path: Path) -> None:
    vocabulary = byte_level_vocabulary()
    context = LONGROPE["original_max_position_embeddings"]
    num_tokens = len(vocabulary.tokens)
    tiny = build("phi3", rope_parameters=LONGROPE, original_max_position_embeddings=context, vocab_size=num_tokens)
    save_folder(tiny.stock, tmp_path)
    build_tokenizer(vocabulary).save(str(tmp_path / "tokenizer.json"))
    request = ask("the dog", num_tokens=50)
    rows = draft(open_backend(tmp_path, CachePolicy.FULL), request)
    for seed, events in zip(SEEDS, rows, strict=True):
        solo = alone(open_backend(tmp_path, CachePolicy.FULL), request, seed)
        assert ids_of(events) == ids_of(solo)
        last_read = [event for event in events if isinstance(event, PrefillProgress)][-1]
        assert last_read.done_tokens == last_read.total_tokens == context


@pytest.mark.real_model
def test_rows_of_the_real_gemma_score_as_their_texts_do_alone(gemma_path: Path) -> None:
    """A product over several rows may round otherwise than over one, so log-probabilities are compared, not bits."""
    backend = open_backend(gemma_path, window=16, sinks=4)
    request = ask("The river ran quietly under the bridge, and", num_tokens=24, sampling=Sampling(temperature=0.8))
    ids: list[list[int]] = [[], []]
    losses: list[list[float]] = [[], []]
    for row, event in backend.generate_together(request, (5, 6), lambda row: False):
        if isinstance(event, TextChunk) and event.token_ids:
            assert backend._drafts is not None
            logits_BV = backend._drafts._step.logits()
            assert logits_BV is not None
            losses[row].append(-float(logits_BV[row].log_softmax(-1)[event.token_ids[0]]))
            ids[row].extend(event.token_ids)
    prompt = backend._prompts.ids(request.messages)
    backend._drop_cache()
    for row in range(2):
        assert len(ids[row]) == 24
        text = [*prompt, *ids[row]]
        again = list(token_losses(backend._model, backend._open_text().cache, text, lambda: False))
        assert again[len(prompt) - 1 :] == pytest.approx(losses[row], abs=1e-3)
        backend._drop_cache()


def test_a_model_that_runs_through_transformers_does_not_claim_it(tmp_path: Path) -> None:
    save_stock_folder(stock_model("gpt2"), tmp_path)
    assert not open_backend(tmp_path).info.drafts_together
