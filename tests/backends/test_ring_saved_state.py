"""States in files: a text goes on after a restart as if there had been none, and nothing foreign is taken up."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.contract import KeepsState
from backends.errors import BadRequestError
from backends.requests import CachePolicy, GenerationRequest, Message
from tests.backends.test_ring import FIRST, as_reply, ask, ids_of, open_backend, reused, run
from tests.backends.tiny_gguf import write_tiny_gguf

PLENTY_BYTES = 2**30


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    return write_tiny_gguf(folder / "tiny.gguf", sliding_window=8, sliding_pattern=2)


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "chat.state")


@pytest.mark.parametrize("policy", CachePolicy)
@pytest.mark.parametrize("kv_type", ["auto", "int8"])
def test_a_reply_goes_on_in_a_new_process_as_it_would_have_without_reading_anything_again(
    model_path: Path, state: str, policy: CachePolicy, kv_type: str
) -> None:
    backend = open_backend(model_path, policy, kv_type=kv_type)
    assert isinstance(backend, KeepsState)
    first = run(backend, ask(FIRST, num_tokens=30))
    assert backend.save_state(state, PLENTY_BYTES) == Path(state).stat().st_size
    went_on = run(backend, ask(FIRST, as_reply(first)))
    fresh = open_backend(model_path, policy, kv_type=kv_type)
    num_tokens = fresh.load_state(state)
    again = run(fresh, ask(FIRST, as_reply(first)))
    assert reused(again) == num_tokens
    assert ids_of(again) == ids_of(went_on)


def test_a_state_saved_in_mid_reply_serves_what_was_written_until_then(model_path: Path, state: str) -> None:
    backend = open_backend(model_path)
    events = []
    for event in backend.generate(ask(FIRST, num_tokens=40), lambda: False):
        events.append(event)
        if len(ids_of(events)) == 25 and not Path(state).exists():
            backend.save_state(state, PLENTY_BYTES)
    fresh = open_backend(model_path)
    num_tokens = fresh.load_state(state)
    part = as_reply(events[: next(n for n in range(len(events)) if len(ids_of(events[:n])) == 25)])
    again = run(fresh, ask(FIRST, part, num_tokens=15))
    assert reused(again) == num_tokens
    assert ids_of(again) == ids_of(events)[25:]


def test_a_text_that_departs_from_the_saved_one_is_read_from_its_start(model_path: Path, state: str) -> None:
    backend = open_backend(model_path)
    run(backend, ask(FIRST))
    backend.save_state(state, PLENTY_BYTES)
    fresh = open_backend(model_path)
    fresh.load_state(state)
    events = run(fresh, ask("|" + FIRST[1:]))
    assert reused(events) == 0
    assert ids_of(events) == ids_of(run(open_backend(model_path), ask("|" + FIRST[1:])))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"window": 7}, "is of window '8', and this is '7'"),
        ({"sinks": 3}, "is of sinks '2', and this is '3'"),
        ({"policy": CachePolicy.FULL}, "is of policy 'ring', and this is 'full'"),
        ({"precision": "bfloat16"}, "is of keys and values 'auto torch.float32', and this is 'auto torch.bfloat16'"),
        ({"kv_type": "int8"}, "is of keys and values"),
    ],
)
def test_a_state_of_other_settings_is_refused_by_name(
    model_path: Path, state: str, fields: dict[str, object], words: str
) -> None:
    backend = open_backend(model_path)
    run(backend, ask(FIRST))
    backend.save_state(state, PLENTY_BYTES)
    with pytest.raises(BadRequestError) as caught:
        open_backend(model_path, **fields).load_state(state)  # type: ignore[arg-type]
    assert words in caught.value.message
    assert caught.value.hint == "The text is read anew."


def test_a_state_of_another_model_and_a_damaged_one_are_refused(model_path: Path, state: str, tmp_path: Path) -> None:
    backend = open_backend(model_path)
    run(backend, ask(FIRST))
    backend.save_state(state, PLENTY_BYTES)
    other = write_tiny_gguf(tmp_path / "other.gguf", sliding_window=8, sliding_pattern=2, num_layers=6)
    with pytest.raises(BadRequestError, match="is of model"):
        open_backend(other).load_state(state)
    content = Path(state).read_bytes()
    for damaged in (content[:-1], content[: len(content) // 2], b"", b"{}"):
        Path(state).write_bytes(damaged)
        with pytest.raises(BadRequestError, match="cannot be read"):
            backend.load_state(state)
    with pytest.raises(BadRequestError, match="cannot be read"):
        backend.load_state(str(tmp_path / "nothing"))


def test_a_pinned_system_prompt_is_pinned_again(model_path: Path, state: str) -> None:
    def chat(*replies: Message) -> GenerationRequest:
        request = ask(FIRST, *replies)
        return GenerationRequest(
            (Message("system", "be-brief"), *request.messages), request.sampling, max_new_tokens=12, ignore_end=True
        )

    backend = open_backend(model_path, sinks=None)
    first = run(backend, chat())
    backend.save_state(state, PLENTY_BYTES)
    fresh = open_backend(model_path, sinks=None)
    num_tokens = fresh.load_state(state)
    assert reused(run(fresh, chat(as_reply(first)))) == num_tokens


def test_nothing_is_saved_beyond_the_budget_or_before_anything_was_read(model_path: Path, state: str) -> None:
    backend = open_backend(model_path)
    assert backend.save_state(state, PLENTY_BYTES) == 0
    run(backend, ask(FIRST))
    assert backend.save_state(state, 100) == 0
    assert not Path(state).exists()
