"""Tiny random folders of families our decoder does not know, as people get them: save_pretrained, and a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from models.vocabulary import build_tokenizer
from tests.models.tiny_models import randomise, save_folder
from tests.models.tiny_tokenizers import byte_level_vocabulary

WINDOW = 8
SLIDING, FULL = "sliding_attention", "full_attention"
BOTH_KINDS = [SLIDING, FULL, SLIDING, SLIDING]
STOCK_FAMILIES: dict[str, dict[str, Any]] = {
    "granite_swa": {"layer_types": BOTH_KINDS},
    "cwm": {"layer_types": BOTH_KINDS},
    "afmoe": {"layer_types": BOTH_KINDS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "mimo_v2_flash": {"layer_types": BOTH_KINDS, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "exaone_moe": {"layer_types": BOTH_KINDS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "vaultgemma": {"layer_types": BOTH_KINDS, "query_pre_attn_scalar": 8},
    "phimoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "stablelm": {},
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 4, "max_position_embeddings": 64},
}
"""Both kinds of layer, all sliding (phimoe), none (stablelm), and a table of positions (gpt2)."""


def stock_model(family: str, **changes: Any) -> Any:
    """The model itself, float32."""
    torch.manual_seed(0)
    values = {
        "vocab_size": len(byte_level_vocabulary().tokens),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "sliding_window": WINDOW,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    model_class = type(AutoConfig.for_model(family))
    known = {key: value for key, value in values.items() if hasattr(model_class(), key)}
    config = model_class(**{**known, **STOCK_FAMILIES[family], **changes})
    model = AutoModelForCausalLM.from_config(config).eval()
    randomise(model)
    return model


def save_stock_folder(model: Any, folder: Path) -> Path:
    """Save a model with a tokenizer of as many tokens."""
    save_folder(model, folder)
    (folder / "tokenizer.json").write_text(build_tokenizer(byte_level_vocabulary()).to_str())
    return folder
