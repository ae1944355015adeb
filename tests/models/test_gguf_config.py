"""GGUF metadata, as llama.cpp's converters write it, against the same model's config in transformers' words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.errors import ModelFileError, UnsupportedModelError
from models.config import LayerConfig, ModelConfig
from models.gguf_config import parse_gguf_config
from models.gguf_reader import read_gguf
from models.hf_config import parse_hf_config
from tests.models.gguf_files import write_gguf

SLIDING, FULL = "sliding_attention", "full_attention"
TYPES = [FULL, SLIDING, SLIDING, FULL]
SLIDES = [False, True, True, False]
HF: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 0.125,
    "max_position_embeddings": 512,
    "rope_theta": 5000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
GGUF: dict[str, Any] = {
    ".embedding_length": 64,
    ".feed_forward_length": 48,
    ".block_count": 4,
    ".attention.head_count": 4,
    ".attention.head_count_kv": 2,
    ".attention.key_length": 16,
    ".attention.value_length": 16,
    ".attention.layer_norm_rms_epsilon": 0.125,
    ".context_length": 512,
    ".rope.freq_base": 5000.0,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}
LAYER_NORM = {".attention.layer_norm_rms_epsilon": None, ".attention.layer_norm_epsilon": 0.125}
QKV_BIAS = ("blk.0.attn_q.bias",)
EXPERTS = tuple(f"blk.{index}.ffn_gate_inp.weight" for index in range(4))
ALL_BIASES = ("blk.0.attn_q.bias", "blk.0.attn_output.bias", "blk.0.ffn_up.bias")
EIGHT = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0]
Changes = dict[str, Any]


def parse(folder: Path, architecture: str, changes: Changes | None = None, *names: str, **tables: Any) -> ModelConfig:
    """Parse a file with these metadata changes (None removes), tensor names and float tables ("a__b" is "a.b")."""
    metadata = {key: value for key, value in {**GGUF, **(changes or {})}.items() if value is not None}
    tensors: dict[str, Any] = dict.fromkeys(("token_embd.weight", "output.weight"), np.zeros((97, 64)))
    tensors.update(dict.fromkeys(names, np.zeros(4)))
    tensors.update({name.replace("__", "."): np.array(values) for name, values in tables.items()})
    return parse_gguf_config(read_gguf(write_gguf(folder / "tiny.gguf", architecture, metadata, tensors)))


@pytest.mark.parametrize(
    ("model_type", "hf", "architecture", "gguf", "names"),
    [
        ("llama", {}, "llama", {".rope.dimension_count": 16}, ()),
        ("llama", {"head_dim": 16, "num_key_value_heads": 4}, "llama",
         {".attention.key_length": None, ".attention.value_length": None, ".attention.head_count_kv": None}, ()),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "llama",
         {".rope.scaling.type": "linear", ".rope.scaling.factor": 4.0}, ()),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "llama", {".rope.scale_linear": 4.0}, ()),
        ("llama", {"attention_bias": True, "mlp_bias": True}, "llama", {}, ALL_BIASES),
        ("mistral", {"sliding_window": None}, "llama", {}, ()),
        ("mistral", {"sliding_window": 8}, "llama", {".attention.sliding_window": 8}, ()),
        ("mixtral", {"num_local_experts": 8}, "llama", {".expert_count": 8, ".expert_used_count": 2}, EXPERTS),
        ("ministral3", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5, "rope_theta": 5000.0}},
         "mistral3", {".rope.scaling.type": "yarn", ".rope.scaling.factor": 4.0,
                      ".rope.scaling.original_context_length": 64, ".rope.scaling.yarn_log_multiplier": 1.0,
                      ".attention.temperature_scale": 0.5}, ()),
        ("qwen2", {}, "qwen2", {}, QKV_BIAS),
        ("qwen2", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
         "qwen2", {".rope.scaling.type": "yarn", ".rope.scaling.factor": 4.0,
                   ".rope.scaling.original_context_length": 64}, QKV_BIAS),
        ("qwen3", {}, "qwen3", {}, ()),
        ("qwen3_moe", {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True},
         "qwen3moe", {".expert_count": 8, ".expert_used_count": 2, ".expert_feed_forward_length": 24}, EXPERTS),
        ("gemma2", {"sliding_window": 8, "query_pre_attn_scalar": 16}, "gemma2",
         {".attention.sliding_window": 8, ".attn_logit_softcapping": 50.0, ".final_logit_softcapping": 30.0}, ()),
        ("gemma3_text", {"sliding_window": 8, "num_hidden_layers": 8, "query_pre_attn_scalar": 16,
                         "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "gemma3",
         {".attention.sliding_window": 8, ".block_count": 8, ".rope.scaling.type": "linear",
          ".rope.scaling.factor": 8.0}, ()),
        ("gemma3_text", {"sliding_window": 8, "layer_types": TYPES, "query_pre_attn_scalar": 16,
                         "rope_local_base_freq": 700.0}, "gemma3",
         {".attention.sliding_window": 8, ".attention.sliding_window_pattern": SLIDES,
          ".rope.freq_base_swa": 700.0}, ()),
        ("phi3", {"partial_rotary_factor": 0.75}, "phi3",
         {".rope.dimension_count": 12, ".attention.sliding_window": 0}, ()),
        ("phi3", {"sliding_window": 8}, "phi3", {".attention.sliding_window": 8}, ()),
        ("starcoder2", {"norm_epsilon": 0.125}, "starcoder2", LAYER_NORM, ALL_BIASES),
        ("olmo2", {}, "olmo2", {}, ()),
        ("olmo3", {"sliding_window": 8, "rope_theta": 500_000.0, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
                   "original_max_position_embeddings": 64, "attention_factor": 1.25}}, "olmo2",
         {".attention.sliding_window": 8, ".attention.sliding_window_pattern": [True, True, True, False],
          ".rope.freq_base": 500_000.0, ".rope.scaling.type": "yarn", ".rope.scaling.factor": 8.0,
          ".rope.scaling.original_context_length": 64, ".rope.scaling.yarn_attn_factor": 1.25}, ()),
        ("cohere2", {"layer_norm_eps": 0.125, "sliding_window": 8, "logit_scale": 0.25}, "cohere2",
         {**LAYER_NORM, ".attention.sliding_window": 8, ".logit_scale": 0.25, ".rope.scaling.type": "none"}, ()),
        ("smollm3", {}, "smollm3", {}, ()),
        ("exaone4", {"sliding_window": None}, "exaone4", {}, ()),
        ("exaone4", {"sliding_window": 8, "layer_types": TYPES}, "exaone4",
         {".attention.sliding_window": 8, ".attention.sliding_window_pattern": SLIDES}, ()),
        ("granite", {"embedding_multiplier": 4.0, "residual_multiplier": 0.5, "attention_multiplier": 0.25,
                     "logits_scaling": 8.0}, "granite",
         {".embedding_scale": 4.0, ".residual_scale": 0.5, ".attention.scale": 0.25, ".logit_scale": 8.0}, ()),
        ("glm4", {"partial_rotary_factor": 0.5}, "glm4", {".rope.dimension_count": 8}, QKV_BIAS),
        ("gpt_oss", {"sliding_window": 8, "num_local_experts": 8, "rope_parameters": {"rope_type": "yarn",
                     "factor": 32.0, "original_max_position_embeddings": 64, "truncate": False}}, "gpt-oss",
         {".attention.sliding_window": 8, ".expert_count": 8, ".expert_used_count": 4,
          ".expert_feed_forward_length": 48, ".rope.scaling.type": "yarn", ".rope.scaling.factor": 32.0,
          ".rope.scaling.original_context_length": 64}, (*QKV_BIAS, "blk.0.attn_output.bias", *EXPERTS)),
    ],
)  # fmt: skip
def test_both_files_of_a_model_give_the_same_decoder(
    tmp_path: Path, model_type: str, hf: Changes, architecture: str, gguf: Changes, names: tuple[str, ...]
) -> None:
    theirs = parse_hf_config({"model_type": model_type, **HF, **hf})
    ours = parse(tmp_path, architecture, gguf, *names)
    assert ours == replace(theirs, architecture=architecture)


def test_rope_freqs_is_the_llama3_scaling(tmp_path: Path) -> None:
    config = parse(tmp_path, "llama", rope_freqs__weight=EIGHT)
    for layer in config.layers:
        assert layer.rope is not None
        assert (layer.rope.kind, layer.rope.frequency_divisors) == ("default", tuple(EIGHT))
    with pytest.raises(UnsupportedModelError, match=r"rope_freqs\.weight is F32 of shape \(7,\)"):
        parse(tmp_path, "llama", rope_freqs__weight=EIGHT[1:])


def test_longrope_comes_in_two_tensors(tmp_path: Path) -> None:
    scaling = {"type": "longrope", "short_factor": EIGHT, "long_factor": EIGHT[::-1], "attention_factor": 1.25}
    hf = parse_hf_config({"model_type": "phi3", **HF, "rope_scaling": scaling, "original_max_position_embeddings": 64})
    keys = {".rope.scaling.original_context_length": 64, ".rope.scaling.attn_factor": 1.25}
    tables = {"rope_factors_short__weight": EIGHT, "rope_factors_long__weight": EIGHT[::-1]}
    assert parse(tmp_path, "phi3", keys, **tables) == replace(hf, architecture="phi3")
    with pytest.raises(UnsupportedModelError, match=r"rope_factors_short\.weight is missing"):
        parse(tmp_path, "phi3", keys, rope_factors_long__weight=EIGHT)


def test_the_head_is_tied_where_the_file_has_none(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": np.zeros((131, 64))}
    file = read_gguf(write_gguf(tmp_path / "tied.gguf", "llama", {**GGUF, ".vocab_size": 97}, tensors))
    config = parse_gguf_config(file)
    assert config.tied_embeddings
    assert config.vocab_size == 131  # the rows that are there
    assert not parse(tmp_path, "llama").tied_embeddings


def test_end_of_turn_ids_are_ends_too(tmp_path: Path) -> None:
    keys = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 2}
    assert parse(tmp_path, "llama", keys).eos_token_ids == (2, 5)


def test_one_value_a_layer_is_one_value_if_they_agree(tmp_path: Path) -> None:
    assert parse(tmp_path, "llama", {".attention.head_count_kv": [2, 2, 2, 2]}).num_kv_heads == 2
    with pytest.raises(UnsupportedModelError, match=r"differ in attention\.head_count_kv"):
        parse(tmp_path, "llama", {".attention.head_count_kv": [2, 2, 4, 2]})


def test_prediction_layers_beyond_the_model_are_left_out(tmp_path: Path) -> None:
    assert len(parse(tmp_path, "exaone4", {".block_count": 5, ".nextn_predict_layers": 1}).layers) == 4


def test_the_largest_gemmas_scale_by_hidden_over_heads(tmp_path: Path) -> None:
    changes = {".block_count": 46, ".embedding_length": 36, ".attention.sliding_window": 8}
    assert parse(tmp_path, "gemma2", changes).attention_scale == 9**-0.5
    assert parse(tmp_path, "gemma2", {**changes, ".block_count": 42}).attention_scale == 16**-0.5


@pytest.mark.parametrize(
    ("architecture", "changes", "named"),
    [
        ("mamba", {}, "'mamba'"),
        ("gemma3n", {}, "'gemma3n'"),
        ("clip", {}, "image part of a multimodal model"),
        ("llama", {"general.type": "adapter"}, "LoRA adapter"),
        ("llama", {".attention.causal": False}, "both directions"),
        ("llama", {".attention.shared_kv_layers": 2}, "share keys and values"),
        ("qwen3moe", {".expert_shared_count": 1}, "shared experts"),
        ("llama", {".rope.scaling.type": "longrope"}, "'longrope'"),
        ("llama", {".attention.value_length": 8}, "different sizes"),
    ],
)
def test_what_cannot_run_is_refused_by_name(tmp_path: Path, architecture: str, changes: Changes, named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        parse(tmp_path, architecture, changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({".attention.head_count": None}, "attention.head_count is missing"),
        ({".block_count": 0}, "block_count is 0"),
        ({".attention.head_count_kv": 3}, "attention.head_count_kv is 3"),
        ({".rope.freq_base": -1.0}, "rope.freq_base is -1.0"),
        ({".attention.sliding_window": 8, ".attention.sliding_window_pattern": [True]}, "sliding_window_pattern"),
    ],
)
def test_a_wrong_key_is_named_with_the_file(tmp_path: Path, changes: Changes, named: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        parse(tmp_path, "llama", changes)
    assert named in str(caught.value)
    assert "tiny.gguf" in str(caught.value)


@pytest.mark.real_model
def test_the_real_gemma(gemma_path: Path) -> None:
    config = parse_gguf_config(read_gguf(gemma_path))
    assert (len(config.layers), config.num_full_layers, config.trained_window) == (18, 3, 512)
    assert [index for index, layer in enumerate(config.layers) if layer.trained_window is None] == [5, 11, 17]
    assert (config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim) == (640, 4, 1, 256)
    assert (config.vocab_size, config.tied_embeddings, config.norm) == (262_144, True, "rms_plus_one")
    assert {layer.rope.theta for layer in config.layers if layer.rope and layer.trained_window} == {1e4}


@pytest.mark.real_model
def test_the_real_smollm2(smollm2_path: Path) -> None:
    config = parse_gguf_config(read_gguf(smollm2_path))
    assert len(config.layers) == 30
    assert config.layers[0] == LayerConfig(None, config.layers[29].rope)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.context_tokens) == (9, 3, 64, 8192)
