"""Tiny random models of every family, made by transformers on the spot, and the same weights in our decoder.

Both layer kinds occur wherever a family has both, and the init range is large enough for attention to matter.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from models.config import ModelConfig
from models.decoder import Decoder
from models.hf_config import parse_hf_config
from models.weight_names import Part, hf_parts

WINDOW = 8
VOCAB_SIZE = 97
SLIDING, FULL = "sliding_attention", "full_attention"
BOTH_KINDS = [SLIDING, FULL, SLIDING]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": LLAMA3},
    "mistral": {},
    "ministral": {"layer_types": BOTH_KINDS},
    "ministral3": {"rope_parameters": {**YARN, "llama_4_scaling_beta": 0.2, "original_max_position_embeddings": 16}},
    "qwen2": {"layer_types": BOTH_KINDS, "use_sliding_window": True},
    "qwen3": {"layer_types": BOTH_KINDS, "use_sliding_window": True, "head_dim": 16, "attention_bias": True},
    "gemma2": {
        "layer_types": BOTH_KINDS,
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3_text": {"layer_types": BOTH_KINDS, "head_dim": 16, "query_pre_attn_scalar": 16},
    "phi3": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}},
    "starcoder2": {},
    "olmo2": {},
    "olmo3": {"layer_types": BOTH_KINDS, "rope_parameters": YARN},
    "cohere2": {"layer_types": BOTH_KINDS, "logit_scale": 0.25},
    "smollm3": {"layer_types": BOTH_KINDS, "use_sliding_window": True, "no_rope_layers": [1, 0, 1]},
    "exaone4": {"layer_types": BOTH_KINDS},
    "granite": {
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
    },
    "mixtral": {"num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
        "use_sliding_window": True,
    },
    "gpt_oss": {
        "num_hidden_layers": 2,
        "layer_types": [SLIDING, FULL],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {**YARN, "truncate": False},
    },
    "glm": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    "glm4": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
}


@dataclass(frozen=True)
class TinyModel:
    """A stock transformers model and our decoder with the same weights."""

    stock: Any
    decoder: Decoder

    @property
    def config(self) -> ModelConfig:
        return self.decoder.config

    def expected(self, ids_BT: Tensor, first_position: int = 0) -> Tensor:
        """Logits [B, T, V] of the stock model without a cache, from a band mask."""
        positions = torch.arange(first_position, first_position + ids_BT.shape[1]).expand_as(ids_BT)
        with torch.inference_mode():
            logits: Tensor = self.stock(ids_BT, position_ids=positions, use_cache=False).logits
        return logits

    def in_float64(self) -> TinyModel:
        """The same weights, to see differences of structure alone."""
        return TinyModel(self.stock, copy.deepcopy(self.decoder).double())


@cache
def tiny_model(family: str, **overrides: Any) -> TinyModel:
    """One of `FAMILIES`, made once; `overrides` are config values, tuples for lists. Do not change it."""
    return build(
        family, **{key: list(value) if isinstance(value, tuple) else value for key, value in overrides.items()}
    )


def build(family: str, **overrides: Any) -> TinyModel:
    """Make one of `FAMILIES` with other config values."""
    torch.manual_seed(0)
    values = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "sliding_window": WINDOW,
        "max_position_embeddings": 512,
        "initializer_range": 0.5,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **FAMILIES[family],
        **overrides,
    }
    stock = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **values), attn_implementation="eager", experts_implementation="eager"
    )
    randomise(stock)
    with TemporaryDirectory() as folder:
        tensors = save_folder(stock, Path(folder))
    config = parse_hf_config(stock.config.to_dict())
    return TinyModel(stock.eval(), decoder_of(config, tensors))


def save_folder(stock: Any, folder: Path) -> dict[str, Tensor]:
    """Save as people get models: config.json and safetensors; return the tensors as they are named there."""
    disable_progress_bar()
    stock.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def randomise(stock: Any) -> None:
    """Give norms, biases and learned sinks values as well, which transformers starts at 0 or 1."""
    for parameter in stock.parameters():
        if parameter.dim() == 1:
            parameter.data += torch.randn_like(parameter) * 0.2


def decoder_of(config: ModelConfig, tensors: dict[str, Tensor]) -> Decoder:
    """Our decoder with the weights of a safetensors file; every tensor must be used and every parameter filled."""
    decoder = Decoder(config, own_head="lm_head.weight" in tensors).eval().requires_grad_(False)
    parameters = dict(decoder.named_parameters())
    for parameter in parameters.values():
        parameter.fill_(torch.nan)
    for name, tensor in tensors.items():
        parts = hf_parts(name, config, tensors.keys())
        assert parts is not None, f"{name} is unknown"
        for part in parts:
            fill(parameters[part.parameter].data, tensor, part)
    empty = [name for name, parameter in parameters.items() if parameter.isnan().any()]
    assert not empty, f"{empty} got no weights"
    return decoder


def fill(parameter: Tensor, tensor: Tensor, part: Part) -> None:
    """Copy one part of a file's tensor, the plain way."""
    if part.transposed:
        tensor = tensor.transpose(-1, -2)
    if part.expert is not None:
        parameter = parameter[part.expert]
    rows = tensor[:, part.rows] if part.is_stack else tensor[part.rows]
    parameter.copy_(rows + part.offset)


def random_ids(num_tokens: int, rows: int = 1, seed: int = 1) -> Tensor:
    """Token ids [rows, num_tokens]."""
    return torch.randint(3, VOCAB_SIZE, (rows, num_tokens), generator=torch.Generator().manual_seed(seed))


def pieces(ids_BT: Tensor, chunks: list[int]) -> Iterator[Tensor]:
    """Cut ids into chunks of these lengths."""
    yield from torch.split(ids_BT, chunks, dim=1)
