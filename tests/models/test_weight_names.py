"""Names of weights: every tensor of a file is a parameter, known to be unneeded, or unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.config import LayerConfig, ModelConfig
from models.weight_names import GGUF_PAIRED_ARCHITECTURES, IGNORED, Part, gguf_parts, hf_parts

CONFIG = ModelConfig("tiny", 97, 32, 48, 4, 2, 8, (LayerConfig(None, None),) * 12)
AFTER = replace(CONFIG, norms_after=True)
PRE = "model.layers.11."


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model."])
def test_a_text_decoder_is_found_inside_a_larger_model(prefix: str) -> None:
    assert hf_parts(f"{prefix}layers.3.self_attn.q_proj.bias", CONFIG, []) == (Part("layers.3.attn.q.bias"),)
    assert hf_parts(f"{prefix}embed_tokens.weight", CONFIG, []) == (Part("embed.weight"),)


@pytest.mark.parametrize(
    "name", ["vision_tower.layers.0.self_attn.q_proj.weight", f"{PRE}self_attn.rotary_emb.inv_freq"]
)
def test_what_no_parameter_needs_is_told_from_what_is_unknown(name: str) -> None:
    assert hf_parts(name, CONFIG, []) == IGNORED
    assert hf_parts("model.layers.0.self_attn.new_idea.weight", CONFIG, []) is None
    assert hf_parts("model.new_idea", CONFIG, []) is None
    assert gguf_parts("rope_freqs.weight", CONFIG, "llama") == IGNORED
    assert gguf_parts("blk.0.new_idea.weight", CONFIG, "llama") is None
    assert gguf_parts("new-idea", CONFIG, "llama") is None


def test_a_norm_after_attention_is_before_the_block_that_follows_or_after_attention_as_its_company_says() -> None:
    name = f"{PRE}post_attention_layernorm.weight"
    assert hf_parts(name, CONFIG, [name]) == (Part("layers.11.mlp_norm.weight"),)
    assert hf_parts(name, AFTER, [name]) == (Part("layers.11.attn_post_norm.weight"),)
    glm = [name, f"{PRE}post_self_attn_layernorm.weight"]
    assert hf_parts(name, AFTER, glm) == (Part("layers.11.mlp_norm.weight"),)
    assert gguf_parts("blk.11.post_attention_norm.weight", CONFIG, "gpt-oss") == (Part("layers.11.mlp_norm.weight"),)
    assert gguf_parts("blk.11.post_attention_norm.weight", AFTER, "gemma3") == (
        Part("layers.11.attn_post_norm.weight"),
    )


def test_fused_matrices_are_cut_where_the_heads_end() -> None:
    qkv = (
        Part("layers.11.attn.q.weight", 0, 32),
        Part("layers.11.attn.k.weight", 32, 48),
        Part("layers.11.attn.v.weight", 48, 64),
    )
    assert hf_parts(f"{PRE}self_attn.qkv_proj.weight", CONFIG, []) == qkv
    assert gguf_parts("blk.11.attn_qkv.weight", CONFIG, "phi3") == qkv
    both = (Part("layers.11.mlp.gate.weight", stop=48), Part("layers.11.mlp.up.weight", 48, 96))
    assert hf_parts(f"{PRE}mlp.gate_up_proj.weight", CONFIG, []) == both
    assert gguf_parts("blk.11.ffn_up.weight", CONFIG, "phi3") == both
    assert gguf_parts("blk.11.ffn_up.weight", CONFIG, "llama") == (Part("layers.11.mlp.up.weight"),)


@pytest.mark.parametrize("architecture", ["llama", "mistral3", "qwen2", "gemma3", "cohere2"])
def test_rotary_pairs_are_undone_for_the_architectures_that_store_them_so(architecture: str) -> None:
    heads = {"attn_q": 4, "attn_k": 2} if architecture in GGUF_PAIRED_ARCHITECTURES else {}
    for module in ("attn_q", "attn_k", "attn_v"):
        parts = gguf_parts(f"blk.0.{module}.weight", CONFIG, architecture)
        assert parts is not None
        assert parts[0].paired_heads == heads.get(module)


def test_llama_cpp_stores_gemmas_norms_with_one_added() -> None:
    gemma = replace(CONFIG, norm="rms_plus_one")
    for name in (
        "output_norm.weight",
        "blk.0.attn_norm.weight",
        "blk.0.attn_q_norm.weight",
        "blk.0.post_ffw_norm.weight",
    ):
        parts = gguf_parts(name, gemma, "gemma3")
        assert parts is not None
        assert parts[0].offset == -1.0
    assert gguf_parts("blk.0.attn_q.weight", gemma, "gemma3") == (Part("layers.0.attn.q.weight"),)


def test_experts_come_one_to_a_tensor_or_stacked_with_gate_and_up_taking_turns() -> None:
    single = hf_parts(f"{PRE}block_sparse_moe.experts.3.w3.weight", CONFIG, [])
    assert single == (Part("layers.11.moe.up.weight", expert=3),)
    stacked = hf_parts(f"{PRE}mlp.experts.gate_up_proj", CONFIG, [])
    assert stacked is not None
    assert [(part.parameter, part.rows, part.transposed, part.is_stack) for part in stacked] == [
        ("layers.11.moe.gate.weight", slice(0, None, 2), True, True),
        ("layers.11.moe.up.weight", slice(1, None, 2), True, True),
    ]
    assert gguf_parts("blk.11.ffn_gate_exps.weight", CONFIG, "qwen3moe") == (Part("layers.11.moe.gate.weight"),)
