"""Which tensor of a file is which parameter of `models.decoder`, for safetensors folders and GGUF files.

Pure data and string work: no torch, no file is opened. A loader asks for the `Part`s of every tensor it finds, copies
each part where it says, and complains of tensors it is told nothing about and of parameters that stay empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from models.config import ModelConfig

_EXPERTS = re.compile(r"\.moe\.(gate|up|down)\.\w+$")


@dataclass(frozen=True)
class Part:
    """Some rows of a file's tensor that are a parameter, or some of its experts.

    A row is an index of the output dimension: the first of a matrix, the second of stacked experts.

    Attributes:
        parameter: canonical name.
        start, stop, step: which rows of the tensor; all by default.
        expert: index along the parameter's first dimension that this part fills; None fills all of it.
        transposed: the file stores [.., input, output]; swap the last two dimensions before taking rows.
        paired_heads: in each of this many heads, rotary pairs are neighbours (row 2i and 2i + 1); bring row 2i to i
            and row 2i + 1 to i + half the head. None leaves the order alone.
        offset: added to every value.
    """

    parameter: str
    start: int = 0
    stop: int | None = None
    step: int = 1
    expert: int | None = None
    transposed: bool = False
    paired_heads: int | None = None
    offset: float = 0.0

    @property
    def rows(self) -> slice:
        return slice(self.start, self.stop, self.step)

    @property
    def is_stack(self) -> bool:
        """Whether the tensor holds all experts of a layer, so that its rows are its second dimension."""
        return self.expert is None and self.is_expert

    @property
    def is_expert(self) -> bool:
        """Whether this is some or all of a parameter that stacks experts."""
        return _EXPERTS.search(self.parameter) is not None

    def alone(self, expert: int) -> Part:
        """Return the same rows as a parameter of one expert: of `moe.up.weight`, `moe.up.3.weight`."""
        module, _, leaf = self.parameter.rpartition(".")
        return replace(self, parameter=f"{module}.{expert}.{leaf}", expert=None)


IGNORED: tuple[Part, ...] = ()
"""What a tensor gets that no parameter needs: tables derived from the config, the vision part of a larger model."""


def hf_parts(name: str, config: ModelConfig, all_names: Collection[str]) -> tuple[Part, ...] | None:
    """Parts of one tensor of a safetensors folder.

    Args:
        name: as the file spells it.
        config: of the model.
        all_names: every tensor of the folder; the meaning of `post_attention_layernorm` depends on its company.

    Returns:
        `IGNORED` for a tensor that no parameter needs, None for one this module does not know.
    """
    if _HF_IGNORED.search(name):
        return IGNORED
    short = _HF_PREFIX.sub("", name)
    if short in _HF_TOP:
        return (Part(_HF_TOP[short]),)
    match = re.fullmatch(r"layers\.(\d+)\.(.+?)\.?(weight|bias|sinks|gate_up_proj|down_proj)(_bias|_blocks)?", short)
    if match is None:
        return None
    index, module, leaf, suffix = match.groups()
    layer = f"layers.{index}"
    return _hf_experts(layer, module, leaf, suffix, config) or _hf_dense(
        layer, module, leaf, config, any("post_self_attn_layernorm" in other for other in all_names)
    )


def gguf_parts(name: str, config: ModelConfig, architecture: str) -> tuple[Part, ...] | None:
    """Parts of one tensor of a GGUF file; `architecture` as its `general.architecture` says.

    Returns:
        `IGNORED` for a tensor that no parameter needs, None for one this module does not know.
    """
    if name in _GGUF_IGNORED:
        return IGNORED
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+?)(?:\.(weight|bias))?", name)
    if match is None:
        return None
    index, module, leaf = match.groups()
    if index is None:
        parts: tuple[Part, ...] | None = (Part(f"{_GGUF_TOP[module]}.{leaf}"),) if module in _GGUF_TOP else None
    else:
        parts = _gguf_layer(f"layers.{index}", module, leaf, config, architecture)
    if parts and config.norm == "rms_plus_one" and module.endswith("norm"):
        return tuple(Part(part.parameter, offset=-1.0) for part in parts)  # llama.cpp stores what it multiplies by
    return parts


def file_name(parameter: str, is_gguf: bool) -> str | None:
    """Return the usual name of a parameter's tensor in a file, for an error; None where there is no one usual name.

    >>> file_name("layers.3.attn.k.weight", is_gguf=True)
    'blk.3.attn_k.weight'
    """
    if is_gguf:
        top = {f"{known}.weight": f"{name}.weight" for name, known in _GGUF_TOP.items()}
        modules, layer_name = _GGUF_MODULES, "blk"
    else:
        top = {known: name if name == "lm_head.weight" else f"model.{name}" for name, known in _HF_TOP.items()}
        modules, layer_name = _HF_MODULES, "model.layers"
    match = re.fullmatch(r"layers\.(\d+)\.(.+)\.(\w+)", parameter)
    if match is None:
        return top.get(parameter)
    module = next((name for name, known in modules.items() if known == match[2]), None)
    return None if module is None else f"{layer_name}.{match[1]}.{module}.{match[3]}"


GGUF_PAIRED_ARCHITECTURES = frozenset({"llama", "mistral3", "granite", "smollm3"})
"""Their converters reorder the rows of q and k so that rotary pairs are neighbours."""

_HF_PREFIX = re.compile(r"^(?:language_model\.model\.|model\.language_model\.|language_model\.|model\.)")
_HF_IGNORED = re.compile(r"rotary_emb\.inv_freq|vision_tower|multi_modal_projector|vision_model|masked_bias")
_HF_TOP = {
    "embed_tokens.weight": "embed.weight",
    "norm.weight": "norm.weight",
    "norm.bias": "norm.bias",
    "lm_head.weight": "head.weight",
}
_HF_MODULES = {
    "self_attn.q_proj": "attn.q",
    "self_attn.k_proj": "attn.k",
    "self_attn.v_proj": "attn.v",
    "self_attn.o_proj": "attn.o",
    "self_attn.q_norm": "attn.q_norm",
    "self_attn.k_norm": "attn.k_norm",
    "mlp.gate_proj": "mlp.gate",
    "mlp.up_proj": "mlp.up",
    "mlp.down_proj": "mlp.down",
    "mlp.c_fc": "mlp.up",
    "mlp.c_proj": "mlp.down",
    "input_layernorm": "attn_norm",
    "pre_feedforward_layernorm": "mlp_norm",
    "post_feedforward_layernorm": "mlp_post_norm",
    "post_self_attn_layernorm": "attn_post_norm",
    "post_mlp_layernorm": "mlp_post_norm",
    "mlp.gate": "moe.router",
    "mlp.router": "moe.router",
    "block_sparse_moe.gate": "moe.router",
}
_HF_EXPERT_MODULES = {"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}


def _hf_dense(
    layer: str, module: str, leaf: str, config: ModelConfig, names_attention_norm: bool
) -> tuple[Part, ...] | None:
    if leaf == "sinks":
        return (Part(f"{layer}.attn.sinks"),) if module == "self_attn" else None
    if module == "self_attn.qkv_proj":
        return _split(layer, leaf, config)
    if module == "mlp.gate_up_proj":
        return _gate_and_up(layer, leaf, config)
    if module == "post_attention_layernorm":
        comes_after = config.norms_after and not names_attention_norm
        return (Part(f"{layer}.{'attn_post_norm' if comes_after else 'mlp_norm'}.{leaf}"),)
    return (Part(f"{layer}.{_HF_MODULES[module]}.{leaf}"),) if module in _HF_MODULES else None


def _hf_experts(layer: str, module: str, leaf: str, suffix: str | None, config: ModelConfig) -> tuple[Part, ...] | None:
    """One tensor an expert (Mixtral, Qwen3-MoE), or all in one with gate and up taking turns (gpt-oss).

    The latter lie [.., input, output], but in MXFP4 blocks [.., output, input].
    """
    single = re.fullmatch(r"(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(\w+)", module)
    if single and single[2] in _HF_EXPERT_MODULES:
        return (Part(f"{layer}.moe.{_HF_EXPERT_MODULES[single[2]]}.{leaf}", expert=int(single[1])),)
    if module != "mlp.experts" or leaf not in ("gate_up_proj", "down_proj"):
        return None
    kind, transposed = "bias" if suffix == "_bias" else "weight", suffix is None
    if leaf == "down_proj":
        return (Part(f"{layer}.moe.down.{kind}", transposed=transposed),)
    return (
        Part(f"{layer}.moe.gate.{kind}", step=2, transposed=transposed),
        Part(f"{layer}.moe.up.{kind}", start=1, step=2, transposed=transposed),
    )


def _split(layer: str, leaf: str, config: ModelConfig) -> tuple[Part, ...]:
    """Queries, keys and values stored as one matrix, in this order."""
    query_rows, key_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    bounds = (0, query_rows, query_rows + key_rows, query_rows + 2 * key_rows)
    return tuple(
        Part(f"{layer}.attn.{name}.{leaf}", start=start, stop=stop)
        for name, start, stop in zip("qkv", bounds[:-1], bounds[1:], strict=True)
    )


def _gate_and_up(layer: str, leaf: str, config: ModelConfig) -> tuple[Part, ...]:
    return (
        Part(f"{layer}.mlp.gate.{leaf}", stop=config.mlp_size),
        Part(f"{layer}.mlp.up.{leaf}", start=config.mlp_size, stop=2 * config.mlp_size),
    )


_GGUF_IGNORED = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
_GGUF_TOP = {"token_embd": "embed", "output_norm": "norm", "output": "head"}
_GGUF_MODULES = {
    "attn_q": "attn.q",
    "attn_k": "attn.k",
    "attn_v": "attn.v",
    "attn_output": "attn.o",
    "attn_q_norm": "attn.q_norm",
    "attn_k_norm": "attn.k_norm",
    "attn_norm": "attn_norm",
    "ffn_norm": "mlp_norm",
    "ffn_gate": "mlp.gate",
    "ffn_up": "mlp.up",
    "ffn_down": "mlp.down",
    "post_ffw_norm": "mlp_post_norm",
    "ffn_gate_inp": "moe.router",
    "ffn_gate_exps": "moe.gate",
    "ffn_up_exps": "moe.up",
    "ffn_down_exps": "moe.down",
}


def _gguf_layer(
    layer: str, module: str, leaf: str | None, config: ModelConfig, architecture: str
) -> tuple[Part, ...] | None:
    if module == "attn_sinks":
        return (Part(f"{layer}.attn.sinks"),)
    if leaf is None:
        return None
    if module == "attn_rot_embd":
        return IGNORED
    if module == "attn_qkv":
        return _split(layer, leaf, config)
    if module == "ffn_up" and architecture in ("phi3", "glm4"):
        return _gate_and_up(layer, leaf, config)
    if module == "post_attention_norm":
        return (Part(f"{layer}.{'attn_post_norm' if config.norms_after else 'mlp_norm'}.{leaf}"),)
    if module not in _GGUF_MODULES:
        return None
    paired = None
    if architecture in GGUF_PAIRED_ARCHITECTURES and module in ("attn_q", "attn_k"):
        paired = config.num_heads if module == "attn_q" else config.num_kv_heads
    return (Part(f"{layer}.{_GGUF_MODULES[module]}.{leaf}", paired_heads=paired),)
