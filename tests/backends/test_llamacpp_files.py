"""GGUF files that llama.cpp would end its process over, or read otherwise than the ring engine does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp")

from backends.contract import Backend
from backends.errors import ModelFileError
from backends.events import Finished, TextChunk
from backends.llamacpp.file_checks import check_file
from backends.llamacpp.loading import load as load_llamacpp
from backends.requests import GenerationRequest, LoadRequest, Message, Sampling
from backends.ring.loading import load as load_ring
from models.gguf_reader import read_gguf
from tests.backends.tiny_gguf import VOCAB_SIZE, write_tiny_gguf
from tests.models.test_gguf_against_llamacpp import SOME_EXPERTS, Case, vocabulary, write_case

TOKENS: list[str] = vocabulary()["tokenizer.ggml.tokens"]


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({".block_count": 0}, "llama.block_count is 0; it has to be a whole number of at least 1"),
        ({".block_count": 600}, "llama.block_count is 600; it has to be at most 512"),
        ({".nextn_predict_layers": 4}, "llama.nextn_predict_layers is 4; it has to be below the 4 layers there are"),
        ({".attention.head_count_kv": 3}, "head_count_kv is 3; it has to be a divisor of the 4 attention heads"),
        ({".attention.head_count_kv": [2, 2, 3, 2]}, "a divisor of the 4 attention heads of layer 2"),
        ({".attention.head_count": [4, 4]}, "llama.attention.head_count is array([4, 4]"),
        ({".embedding_length": 0}, "llama.embedding_length is 0"),
        ({**SOME_EXPERTS, ".expert_used_count": 5}, "expert_used_count is 5; it has to be from 1 to the 4 experts"),
        ({**SOME_EXPERTS, ".expert_used_count": 0}, "expert_used_count is 0"),
        ({".expert_used_count": 2}, "llama.expert_used_count is 2; it has to be 0 or absent"),
        ({".rope.scaling.type": "ntk"}, "llama.rope.scaling.type is 'ntk'; it has to be one of none, linear, yarn"),
        (
            {"tokenizer.ggml.tokens": [*TOKENS[:9], TOKENS[4], *TOKENS[10:]]},
            "tokenizer.ggml.tokens holds the token '<0x01>' twice, as 4 and 9",
        ),
        ({"tokenizer.ggml.token_type": [2, 3]}, "tokenizer.ggml.token_type holds 2 values for 259 tokens"),
        ({"tokenizer.ggml.scores": [0.0]}, "tokenizer.ggml.scores holds 1 values for 259 tokens"),
    ],
)
def test_a_file_that_would_end_llama_cpp_is_refused_by_its_key(
    tmp_path: Path, metadata: dict[str, Any], said: str
) -> None:
    path = write_case(tmp_path / "odd.gguf", Case("llama", metadata))
    with pytest.raises(ModelFileError) as caught:
        load_llamacpp(LoadRequest("llamacpp", str(path)), lambda progress: None)
    assert said in str(caught.value)
    assert "odd.gguf" in str(caught.value)


def test_a_sound_file_passes(tmp_path: Path) -> None:
    check_file(read_gguf(write_case(tmp_path / "sound.gguf", Case("llama"))))
    check_file(read_gguf(write_case(tmp_path / "experts.gguf", Case("llama", SOME_EXPERTS))))


@pytest.mark.parametrize("load", [load_ring, load_llamacpp])
@pytest.mark.parametrize("eos_id", [VOCAB_SIZE, 2**31 - 1])
def test_an_end_id_beyond_the_vocabulary_ends_nothing_and_stops_nothing(tmp_path: Path, load: Any, eos_id: int) -> None:
    path = write_tiny_gguf(tmp_path / "odd-end.gguf", "llama", eos_id=eos_id)
    backend: Backend = load(LoadRequest("any", str(path), device="cpu"), lambda progress: None)
    try:
        request = GenerationRequest(
            (Message("user", "abc"),), Sampling(temperature=0.0), max_new_tokens=8, ignore_end=True
        )
        events = list(backend.generate(request, lambda: False))
    finally:
        backend.close()
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "length"
    assert any(isinstance(event, TextChunk) for event in events)
