"""Rotary settings in every spelling, against the frequencies transformers computes from the same config."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from backends.errors import ModelFileError, UnsupportedModelError
from models.config import RopeConfig
from models.hf_config import parse_hf_config
from models.rope import attention_factor, frequencies

SLIDING, FULL = "sliding_attention", "full_attention"
TINY: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 64,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 8,
    "max_position_embeddings": 512,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
EIGHT = [1.0 + 0.25 * index for index in range(8)]


def ropes(model_type: str, **values: Any) -> list[RopeConfig]:
    config = parse_hf_config(copy.deepcopy({"model_type": model_type, **TINY, **values}))
    return [layer.rope for layer in config.layers if layer.rope is not None]


def rotary_of_transformers(model_type: str, **values: Any) -> Any:
    config = AutoConfig.for_model(model_type, **copy.deepcopy({**TINY, "pad_token_id": 0, **values}))
    return AutoModel.from_config(config).rotary_emb


def assert_same_rotation(rope: RopeConfig, rotary: Any, prefix: str = "") -> None:
    theirs = getattr(rotary, f"{prefix}inv_freq").double()
    torch.testing.assert_close(frequencies(rope), theirs, rtol=1e-6, atol=0)
    assert attention_factor(rope) == pytest.approx(getattr(rotary, f"{prefix}attention_scaling"))


@pytest.mark.parametrize(
    ("model_type", "values"),
    [
        ("llama", {}),
        ("llama", {"rope_theta": 500_000.0}),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 5e5}),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
        ("llama", {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 5e5}),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}}),
        ("llama", {"rope_scaling": {"type": "yarn", **YARN}}),
        ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0}}),
        ("qwen2", {"rope_scaling": {"rope_type": "yarn", **YARN, "attention_factor": 1.5}, "rope_theta": 1e6}),
        ("qwen3", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, **YARN, "beta_fast": 16.0}}),
        ("ministral3", {}),
        ("ministral3", {"rope_parameters": {"type": "yarn", "rope_theta": 1e4, **YARN, "llama_4_scaling_beta": 0.1}}),
        ("gpt_oss", {}),
        ("mixtral", {}),
        ("smollm3", {}),
        ("glm4", {}),
        ("glm4", {"partial_rotary_factor": 0.25, "rope_theta": 5e5}),
        ("glm", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}}),
        ("phi3", {}),
        ("phi3", {"partial_rotary_factor": 0.75}),
        ("phi3", {"rope_scaling": {"rope_type": "longrope", "short_factor": EIGHT, "long_factor": EIGHT[::-1]},
                  "original_max_position_embeddings": 64}),
        ("phi3", {"rope_scaling": {"type": "yarn", "short_factor": EIGHT, "long_factor": EIGHT, "rope_theta": 1e4},
                  "original_max_position_embeddings": 64}),
        ("cohere2", {"rope_theta": 5e4}),
        ("granite", {"rope_theta": 5e6}),
    ],
)  # fmt: skip
def test_frequencies_are_those_of_transformers(model_type: str, values: dict[str, Any]) -> None:
    rotary = rotary_of_transformers(model_type, **values)
    for rope in ropes(model_type, **values):
        assert_same_rotation(rope, rotary)


GEMMA3_NESTED = {
    "rope_parameters": {
        FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
        SLIDING: {"rope_type": "default", "rope_theta": 2e4},
    }
}


@pytest.mark.parametrize(
    ("model_type", "values"),
    [
        ("gemma3_text", {}),
        ("gemma3_text", GEMMA3_NESTED),
        ("gemma3_text", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        (
            "gemma3_text",
            {"rope_theta": 2e6, "rope_local_base_freq": 3e4, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        ),
        ("olmo3", {}),
        ("olmo3", {"rope_scaling": {"rope_type": "yarn", **YARN}}),
        ("olmo3", {"rope_scaling": {"rope_type": "yarn", **YARN, "attention_factor": 1.2, "beta_slow": 2}}),
    ],
)
def test_each_layer_type_has_its_own_base_and_scaling(model_type: str, values: dict[str, Any]) -> None:
    values = {"layer_types": [SLIDING, FULL], **values}
    rotary = rotary_of_transformers(model_type, **values)
    sliding, full = ropes(model_type, **values)
    assert_same_rotation(sliding, rotary, f"{SLIDING}_")
    assert_same_rotation(full, rotary, f"{FULL}_")
    assert sliding.kind == "default"


def test_gemma3_in_old_and_new_spelling_is_the_same_model() -> None:
    old = {"rope_theta": 2e6, "rope_local_base_freq": 2e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    types = {"layer_types": [SLIDING, FULL]}
    assert ropes("gemma3_text", **types, **old) == ropes("gemma3_text", **types, **GEMMA3_NESTED)


def test_one_theta_in_four_spellings() -> None:
    """A base that moved into another key must not become the default of 10,000."""
    spellings: list[dict[str, Any]] = [
        {"rope_theta": 500_000.0},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
        {"rope_parameters": {"rope_type": "default"}, "rope_theta": 500_000.0},
        {"rope_scaling": None, "rope_parameters": {"rope_theta": 500_000.0}},
    ]
    for spelling in spellings:
        assert ropes("llama", **spelling) == [RopeConfig(theta=500_000.0, dims=16)] * 2


def test_longrope_takes_the_long_factors_one_token_after_the_original_context() -> None:
    scaling = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    rope = ropes("phi3", rope_scaling=scaling, original_max_position_embeddings=64)[0]
    assert rope.original_context_tokens == 64
    assert torch.equal(frequencies(rope, 64), 2 * frequencies(rope, 65))


def test_su_is_the_first_name_of_longrope() -> None:
    scaling = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    old, new = (
        ropes("phi3", rope_scaling={"type": name, **scaling}, original_max_position_embeddings=64)
        for name in ("su", "longrope")
    )
    assert old == new


def test_a_partial_rotation_turns_the_first_dimensions() -> None:
    factors = {"short_factor": [1.0] * 6, "long_factor": [1.0] * 6}
    rope = ropes("phi3", partial_rotary_factor=0.75, rope_scaling={"type": "longrope", **factors})[0]
    assert rope.dims == 12
    with pytest.raises(ModelFileError, match="a list of 6 numbers"):
        ropes(
            "phi3", partial_rotary_factor=0.75, rope_scaling={"type": "longrope", **factors, "long_factor": [1.0] * 8}
        )


@pytest.mark.parametrize("kind", ["magic", "mrope", "proportional"])
def test_an_unknown_kind_is_refused_by_name(kind: str) -> None:
    with pytest.raises(UnsupportedModelError, match=kind):
        ropes("llama", rope_parameters={"rope_type": kind, "factor": 2.0})
