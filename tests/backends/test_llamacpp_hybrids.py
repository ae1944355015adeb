"""Hybrid models in llama.cpp: a text is taken up where a turn ended, and the rest is read as by a fresh context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("llama_cpp")

from backends.events import Event, PrefillProgress, TextChunk
from backends.llamacpp import load, running_states
from backends.llamacpp.generation import LlamaCppBackend
from backends.llamacpp.running_states import RunningStates, ends_of_batches
from backends.requests import GenerationRequest, LoadRequest, Message, Sampling
from tests.backends.tiny_gguf import write_tiny_gguf

LONG = "the keeper of the light wrote down the hour and the wind, " * 8
TEMPLATE = (
    "{% for m in messages %}{{ bos_token }}{{ m.role }}:"
    "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant:{% endif %}"
)
THINKING = TEMPLATE.replace("assistant:{% endif", "assistant:<think>{% endif")
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("hybrid") / "lfm2.gguf", "lfm2")


def open_backend(path: Path, template: str = TEMPLATE) -> LlamaCppBackend:
    request = LoadRequest("llamacpp", str(path), window=3000, device="cpu", num_threads=1, chat_template=template)
    return load(request, lambda progress: None)


@pytest.fixture(params=[TEMPLATE, THINKING], ids=["plain", "thinking"])
def backend(request: pytest.FixtureRequest, path: Path) -> Iterator[LlamaCppBackend]:
    loaded = open_backend(path, request.param)
    yield loaded
    loaded.close()


def run(backend: LlamaCppBackend, messages: list[Message], **fields: Any) -> list[Event]:
    request = GenerationRequest(tuple(messages), GREEDY, max_new_tokens=24, ignore_end=True)
    return list(backend.generate(replace(request, **fields), lambda: False))


def ids_of(events: list[Event]) -> tuple[int, ...]:
    return tuple(token for event in events if isinstance(event, TextChunk) for token in event.token_ids)


def reply_of(events: list[Event]) -> Message:
    text = "".join(event.text for event in events if isinstance(event, TextChunk))
    return Message("assistant", text, ids_of(events))


def left_to_read(events: list[Event]) -> int:
    first = next(event for event in events if isinstance(event, PrefillProgress))
    return first.total_tokens - first.reused_tokens


def fresh(backend: LlamaCppBackend, messages: list[Message]) -> tuple[int, ...]:
    """Answer with an empty context; the backend's own is left empty."""
    backend.parts.sequence.clear()
    return ids_of(run(backend, messages))


def test_a_new_variant_reads_one_token(backend: LlamaCppBackend) -> None:
    chat = [Message("user", LONG)]
    first = run(backend, chat)
    again = run(backend, chat)
    assert left_to_read(again) == 1
    assert ids_of(again) == ids_of(first) == fresh(backend, chat)


def test_an_edited_last_message_reads_what_is_new_though_all_of_the_chat_was_read_at_once(
    backend: LlamaCppBackend,
) -> None:
    chat = [Message("user", LONG), Message("assistant", f"because</think>{LONG}"), Message("user", "And then?")]
    backend.parts.sequence.clear()
    run(backend, chat)
    edited = [*chat[:2], Message("user", "And so?")]
    events = run(backend, edited)
    assert left_to_read(events) < 64
    assert ids_of(events) == fresh(backend, edited)


def test_the_end_of_a_reply_is_where_the_next_message_is_edited(backend: LlamaCppBackend) -> None:
    chat = [Message("user", LONG)]
    chat.append(reply_of(run(backend, chat)))
    run(backend, [*chat, Message("user", "one " * 30)])
    edited = [*chat, Message("user", "two " * 3)]
    events = run(backend, edited)
    assert left_to_read(events) < 96
    assert ids_of(events) == fresh(backend, edited)


def test_a_template_that_drops_thoughts_goes_back_to_where_the_reply_began(path: Path) -> None:
    backend = open_backend(path, THINKING)
    chat = [Message("user", LONG)]
    drawn = ids_of(run(backend, chat, max_new_tokens=200))
    thought = Message("assistant", "so it is</think>It is.", drawn)  # what the template writes has none of these ids
    later = [*chat, replace(thought, token_ids=None), Message("user", "Why?")]
    events = run(backend, later)
    assert left_to_read(events) < 64
    assert ids_of(events) == fresh(backend, later)
    backend.close()


def test_the_middle_of_a_long_prompt_is_no_more_than_an_interval_away(path: Path) -> None:
    backend = open_backend(path)
    run(backend, [Message("user", LONG * 4)])
    edited = [Message("user", LONG * 3 + "another end")]
    events = run(backend, edited)
    assert left_to_read(events) <= len(LONG) + running_states.INTERVAL_TOKENS + 128
    assert ids_of(events) == fresh(backend, edited)
    backend.close()


def test_other_chats_and_a_cleared_context_are_answered_as_by_a_fresh_one(backend: LlamaCppBackend) -> None:
    chats = [[Message("user", LONG + end)] for end in ("a", "b", "c" * 300)] + [[Message("user", "short")]]
    expected = [fresh(backend, chat) for chat in chats]
    for place in (0, 1, 0, 2, 3, 3, 2, 1, 0):
        assert ids_of(run(backend, chats[place])) == expected[place]


def test_a_state_that_the_library_refuses_is_read_again(backend: LlamaCppBackend, monkeypatch: Any) -> None:
    chat = [Message("user", LONG)]
    first = ids_of(run(backend, chat))
    monkeypatch.setattr(type(backend.parts.context), "set_running_state", lambda self, state: False)
    again = run(backend, chat)
    assert left_to_read(again) > len(LONG)
    assert ids_of(again) == first


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 900)), max_size=200),
    state_bytes=st.sampled_from([1, 1000, 2**20]),
)
def test_states_stay_within_their_number_and_bytes_and_none_is_of_a_text_that_was_left(
    steps: list[tuple[bool, int]], state_bytes: int
) -> None:
    states, num_fed = RunningStates(), 0
    budget = 64 * 2**20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_states, "MAX_BYTES", budget)
        patch.setattr(running_states, "MAX_STATES", 20)
        for goes_back, distance in steps:
            if goes_back:
                num_fed = max(0, num_fed - distance)
                states.forget_after(num_fed)
            else:
                num_fed += distance
                states.keep(num_fed, bytes(state_bytes))
                assert states.latest() == (num_fed, bytes(state_bytes))
            assert states.places == sorted(set(states.places))
            assert all(place <= num_fed for place in states.places)
            assert len(states.places) <= 20
            assert states.num_bytes <= budget


def test_states_are_thinned_where_they_lie_close_and_the_newest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_states, "MAX_STATES", 5)
    states = RunningStates()
    for place in (100, 110, 500, 1000, 1001, 1002):
        states.keep(place, b"")
    assert states.places == [110, 500, 1000, 1001, 1002]
    monkeypatch.setattr(running_states, "MAX_BYTES", 10)
    states.keep(2000, bytes(100))
    assert states.places == [1001, 1002, 2000]


@pytest.mark.parametrize(
    ("num_tokens", "start", "ends"),
    [(100, 60, (60, 84, 99, 100)), (100, 0, (84, 99, 100)), (16, 0, (15, 16)), (2, 1, (1, 2)), (1, 0, (1,))],
)
def test_a_prompt_is_read_up_to_its_last_turn_then_to_its_last_token(
    num_tokens: int, start: int, ends: tuple[int, ...]
) -> None:
    assert ends_of_batches(num_tokens, start) == ends
