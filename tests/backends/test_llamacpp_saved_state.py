"""llama.cpp's states in files, on the real Gemma: before and after the context has dropped its oldest tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.contract import Backend, KeepsState
from backends.errors import BadRequestError
from backends.events import PrefillProgress, TextChunk
from backends.requests import CachePolicy, GenerationRequest, LoadRequest, Message, Sampling

llamacpp = pytest.importorskip("backends.llamacpp")
pytestmark = pytest.mark.real_model

SENTENCE = "The lighthouse stood on the rock and the sea went round it, day after day. "
PLENTY_BYTES = 2**30


def open_backend(path: Path, policy: CachePolicy = CachePolicy.RING, **fields: Any) -> Any:
    fields = {"window": 512, "growing_context_tokens": 1024, "device": "cpu", "num_threads": 1, **fields}
    return llamacpp.load(LoadRequest("llamacpp", str(path), policy, **fields), lambda progress: None)


def run(backend: Backend, text: str, reply: tuple[int, ...] = (), num_tokens: int = 12) -> tuple[int, tuple[int, ...]]:
    """Return the tokens that needed no reading, and the ids drawn."""
    earlier = (Message("assistant", "written", reply),) if reply else ()
    messages = (Message("user", text), *earlier)
    request = GenerationRequest(messages, Sampling(temperature=0.0), max_new_tokens=num_tokens, ignore_end=True)
    events = list(backend.generate(request, lambda: False))
    reused = next(event.reused_tokens for event in events if isinstance(event, PrefillProgress))
    return reused, tuple(token for event in events if isinstance(event, TextChunk) for token in event.token_ids)


@pytest.mark.parametrize(
    ("policy", "num_sentences"), [(CachePolicy.RING, 10), (CachePolicy.RING, 46), (CachePolicy.FULL, 40)]
)
def test_a_reply_goes_on_in_a_new_process_as_it_would_have_without_reading_anything_again(
    gemma_path: Path, tmp_path: Path, policy: CachePolicy, num_sentences: int
) -> None:
    text, state = SENTENCE * num_sentences, str(tmp_path / "chat.state")
    backend = open_backend(gemma_path, policy)
    offered: object = backend
    assert isinstance(offered, KeepsState)
    assert backend.save_state(state, PLENTY_BYTES) == 0
    _, first = run(backend, text, num_tokens=24)
    assert backend.save_state(state, 1000) == 0
    assert backend.save_state(state, PLENTY_BYTES) == Path(state).stat().st_size
    _, went_on = run(backend, text, first)
    backend.close()
    fresh = open_backend(gemma_path, policy)
    num_tokens = fresh.load_state(state)
    reused, again = run(fresh, text, first)
    assert (reused, again) == (num_tokens, went_on)
    fresh.close()


def test_a_foreign_or_damaged_state_is_refused_by_name_and_the_text_read_anew(gemma_path: Path, tmp_path: Path) -> None:
    state = tmp_path / "chat.state"
    backend = open_backend(gemma_path)
    _, first = run(backend, SENTENCE)
    backend.save_state(str(state), PLENTY_BYTES)
    backend.close()
    other = open_backend(gemma_path, sinks=9)
    with pytest.raises(BadRequestError, match="is of sinks '4', and this is '9'"):
        other.load_state(str(state))
    other.close()
    same = open_backend(gemma_path)
    content = state.read_bytes()
    for damaged in (content[:-1], content[:-9] + b"?" + content[-8:], b"", b"{}\n", b"[]\nx"):
        state.write_bytes(damaged)
        with pytest.raises(BadRequestError, match="cannot be read"):
            same.load_state(str(state))
    assert run(same, SENTENCE) == (0, first)
    same.close()
