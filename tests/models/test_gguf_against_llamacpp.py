"""Our decoder on a GGUF file against llama.cpp on the same file, for every architecture both can run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from gguf.constants import MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES

from backends.requests import CachePolicy
from models.model_files import ModelFiles
from models.precision import WeightPrecision
from models.ring_cache import KVCache
from models.weights import load_decoder
from tests.models.gguf_files import write_gguf

pytest.importorskip("llama_cpp")

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, EXPERTS, WINDOW = 64, 4, 2, 16, 96, 4, 8
VOCAB_SIZE = 259
_ROOT = Path(__file__).parents[2]
NUM_TOKENS = 60
SHAPES: dict[str, tuple[int, ...]] = {
    "token_embd": (VOCAB_SIZE, HIDDEN),
    "output": (VOCAB_SIZE, HIDDEN),
    "attn_q": (HEADS * HEAD_DIM, HIDDEN),
    "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_qkv": ((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN),
    "attn_output": (HIDDEN, HEADS * HEAD_DIM),
    "attn_q_norm": (HEAD_DIM,),
    "attn_k_norm": (HEAD_DIM,),
    "attn_sinks": (HEADS,),
    "ffn_gate": (MLP, HIDDEN),
    "ffn_up": (MLP, HIDDEN),
    "ffn_down": (HIDDEN, MLP),
    "ffn_gate_inp": (EXPERTS, HIDDEN),
    "ffn_gate_exps": (EXPERTS, MLP, HIDDEN),
    "ffn_up_exps": (EXPERTS, MLP, HIDDEN),
    "ffn_down_exps": (EXPERTS, HIDDEN, MLP),
}
"""Names not here are norms of the hidden size."""
ARCHITECTURES = {name: architecture for architecture, name in MODEL_ARCH_NAMES.items()}
YARN = {".rope.scaling.type": "yarn", ".rope.scaling.factor": 4.0, ".rope.scaling.original_context_length": 32}
SLIDES = {".attention.sliding_window": WINDOW}
SOME_EXPERTS = {".expert_count": EXPERTS, ".expert_used_count": 2, ".expert_feed_forward_length": MLP}
LAYER_NORM = {".attention.layer_norm_epsilon": 1e-5}
HALF = HEAD_DIM // 2


@dataclass(frozen=True)
class Case:
    """One tiny file: its architecture, what it says beyond the usual keys, and how its tensors differ."""

    architecture: str
    metadata: dict[str, Any] = field(default_factory=dict)
    biases: tuple[str, ...] = ()
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tables: dict[str, list[float]] = field(default_factory=dict)
    num_layers: int = 4
    tied: bool = False


CASES = {
    "llama": Case("llama"),
    "llama-counts-of-any-width": Case(
        "llama",
        {
            ".block_count": np.uint64(4),
            ".context_length": np.int64(512),
            ".embedding_length": np.int32(HIDDEN),
            ".feed_forward_length": np.uint16(MLP),
            ".attention.head_count": np.int16(HEADS),
            ".attention.head_count_kv": np.uint8(KV_HEADS),
            ".attention.key_length": np.int8(HEAD_DIM),
            ".attention.layer_norm_rms_epsilon": np.float64(1e-5),
            ".rope.freq_base": np.float64(5000.0),
            "tokenizer.ggml.bos_token_id": np.uint64(1),
            "tokenizer.ggml.eos_token_id": np.int32(2),
        },
    ),
    "llama-tied": Case("llama", tied=True),
    "llama-biases": Case("llama", biases=("attn_q", "attn_k", "attn_v", "attn_output")),
    "llama-linear": Case("llama", {".rope.scaling.type": "linear", ".rope.scaling.factor": 4.0}),
    "llama-untyped-scaling": Case("llama", {".rope.scaling.factor": 4.0}),
    "llama-multiplied": Case("llama", {".rope.scaling.attn_factor": 1.2}),
    "llama-yarn": Case("llama", YARN),
    "llama-yarn-trained-factor": Case("llama", {**YARN, ".rope.scaling.yarn_attn_factor": 1.3}),
    "llama-yarn-multiplied": Case("llama", {**YARN, ".rope.scaling.attn_factor": 1.2}),
    "llama-yarn-both-factors": Case(
        "llama", {**YARN, ".rope.scaling.yarn_attn_factor": 1.3, ".rope.scaling.attn_factor": 0.8}
    ),
    "llama-yarn-betas": Case(
        "llama", {**YARN, ".rope.scaling.yarn_beta_fast": 8.0, ".rope.scaling.yarn_beta_slow": 2.0}
    ),
    "llama-llama3": Case("llama", tables={"rope_freqs.weight": [1.0 + 0.5 * index for index in range(HALF)]}),
    "mixtral": Case("llama", SOME_EXPERTS),
    "mistral3": Case(
        "mistral3", {**YARN, ".rope.scaling.yarn_log_multiplier": 1.0, ".attention.temperature_scale": 0.5}
    ),
    "qwen2": Case("qwen2", biases=("attn_q", "attn_k", "attn_v")),
    "qwen3": Case("qwen3"),
    "qwen3moe": Case("qwen3moe", SOME_EXPERTS),
    "gemma2": Case("gemma2", {**SLIDES, ".attn_logit_softcapping": 5.0, ".final_logit_softcapping": 3.0}),
    "gemma3": Case("gemma3", SLIDES, num_layers=7),
    "gemma3-linear": Case(
        "gemma3", {**SLIDES, ".rope.scaling.type": "linear", ".rope.scaling.factor": 8.0}, num_layers=7
    ),
    "phi3": Case("phi3", {".attention.sliding_window": 0}, shapes={"ffn_up": (2 * MLP, HIDDEN)}),
    "phi3-longrope-derived": Case(
        "phi3",
        {".rope.scaling.original_context_length": 256, ".attention.sliding_window": 0},
        shapes={"ffn_up": (2 * MLP, HIDDEN)},
        tables={
            "rope_factors_short.weight": [1.0 + 0.25 * index for index in range(HALF)],
            "rope_factors_long.weight": [1.0 + 0.25 * index for index in range(HALF)],
        },
    ),
    "phi3-longrope": Case(
        "phi3",
        {
            ".rope.scaling.original_context_length": 512,
            ".rope.scaling.attn_factor": 1.2,
            ".attention.sliding_window": 0,
        },
        shapes={"ffn_up": (2 * MLP, HIDDEN)},
        tables={
            "rope_factors_short.weight": [1.0 + 0.25 * index for index in range(HALF)],
            "rope_factors_long.weight": [2.0] * HALF,
        },
    ),
    "starcoder2": Case(
        "starcoder2",
        LAYER_NORM,
        biases=(
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_output",
            "ffn_up",
            "ffn_down",
            "attn_norm",
            "ffn_norm",
            "output_norm",
        ),
    ),
    "olmo2": Case("olmo2", shapes={"attn_q_norm": (HEADS * HEAD_DIM,), "attn_k_norm": (KV_HEADS * HEAD_DIM,)}),
    "olmo3": Case(
        "olmo2",
        {**SLIDES, **YARN, ".attention.sliding_window_pattern": [True, True, True, False]},
        shapes={"attn_q_norm": (HEADS * HEAD_DIM,), "attn_k_norm": (KV_HEADS * HEAD_DIM,)},
    ),
    "cohere2": Case("cohere2", {**SLIDES, **LAYER_NORM, ".logit_scale": 0.25}),
    "smollm3": Case("smollm3"),
    "exaone4": Case("exaone4"),
    "granite": Case(
        "granite",
        {".embedding_scale": 4.0, ".residual_scale": 0.5, ".attention.scale": 0.25, ".logit_scale": 2.0},
    ),
    "glm4": Case(
        "glm4",
        {".rope.dimension_count": HALF},
        biases=("attn_q", "attn_k", "attn_v"),
        shapes={"ffn_up": (2 * MLP, HIDDEN)},
    ),
    "gpt-oss": Case(
        "gpt-oss",
        {**SLIDES, **SOME_EXPERTS},
        biases=(
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_output",
            "ffn_gate_inp",
            "ffn_gate_exps",
            "ffn_up_exps",
            "ffn_down_exps",
        ),
    ),
}


def write_case(path: Path, case: Case) -> Path:
    """Write the file with every tensor its architecture has, random."""
    metadata = {
        ".context_length": 512,
        ".embedding_length": HIDDEN,
        ".block_count": case.num_layers,
        ".feed_forward_length": MLP,
        ".attention.head_count": HEADS,
        ".attention.head_count_kv": KV_HEADS,
        ".attention.key_length": HEAD_DIM,
        ".attention.value_length": HEAD_DIM,
        ".attention.layer_norm_rms_epsilon": 1e-5,
        ".rope.dimension_count": HEAD_DIM,
        ".rope.freq_base": 5000.0,
        ".vocab_size": VOCAB_SIZE,
        **vocabulary(),
        **case.metadata,
    }
    return write_gguf(path, case.architecture, metadata, tensors_of(case))


def vocabulary() -> dict[str, Any]:
    """One token a byte."""
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        "tokenizer.ggml.scores": [0.0] * VOCAB_SIZE,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def tensors_of(case: Case) -> dict[str, npt.NDArray[np.float64]]:
    random = np.random.default_rng(0)
    tensors = {}
    for pattern in map(TENSOR_NAMES.__getitem__, MODEL_TENSORS[ARCHITECTURES[case.architecture]]):
        if _is_absent(pattern, case):
            continue
        for index in range(case.num_layers if "{bid}" in pattern else 1):
            name = pattern.format(bid=index)
            short = name.rpartition(".")[2]
            shape = case.shapes.get(short) or SHAPES.get(short, (HIDDEN,))
            is_norm = short.endswith("norm")
            tensors[f"{name}.weight"] = random.normal(1.0, 0.2, shape) if is_norm else random.normal(0.0, 0.3, shape)
            if short in case.biases:
                tensors[f"{name}.bias"] = random.normal(0.0, 0.2, shape[:-1] or shape)
    return {**tensors, **{name: np.array(values) for name, values in case.tables.items()}}


def _is_absent(pattern: str, case: Case) -> bool:
    """Tables are written by hand; fused and split projections, dense and mixed blocks exclude each other."""
    short = pattern.rpartition(".")[2]
    has_experts = ".expert_count" in case.metadata
    return (
        short in ("rope_freqs", "rope_factors_long", "rope_factors_short", "attn_rot_embd")
        or "nextn" in pattern
        or (short == "output" and case.tied)
        or (short == "attn_qkv" and case.architecture == "glm4")
        or (short in ("attn_q", "attn_k", "attn_v") and case.architecture == "phi3")
        or (short in ("ffn_gate", "ffn_up", "ffn_down") and has_experts)
        or (short in ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps") and not has_experts)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case's file and llama.cpp's logits of it, computed in one child process."""
    folder = tmp_path_factory.mktemp("families")
    paths = [write_case(folder / f"{name}.gguf", case) for name, case in CASES.items()]
    np.save(folder / "tokens.npy", tokens())
    command = [sys.executable, "-m", "tests.models.llamacpp_logits", str(folder / "tokens.npy"), str(folder)]
    child = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, cwd=_ROOT, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    return folder


@lru_cache(maxsize=1)
def tokens() -> npt.NDArray[np.int32]:
    """Enough to wrap every ring seven times."""
    return np.random.default_rng(1).integers(3, VOCAB_SIZE, NUM_TOKENS).astype(np.int32)


@pytest.mark.parametrize("name", list(CASES))
def test_logits_are_those_of_llama_cpp(folder: Path, name: str) -> None:
    theirs = torch.from_numpy(np.load(folder / f"{name}.npy"))
    files = ModelFiles.open(folder / f"{name}.gguf")
    config = files.config()
    decoder, _ = load_decoder(files, config, WeightPrecision(torch.float32), torch.device("cpu"))
    cache = KVCache(config, CachePolicy.AS_TRAINED, WINDOW, 0)
    with torch.inference_mode():
        ours = decoder(torch.from_numpy(tokens()).long()[None], cache, logits="all")[0]
    scale = float(theirs.std())
    assert scale > 0.5  # logits that say something
    difference = float((ours - theirs).abs().max()) / scale
    assert difference < (1e-2 if config.activation == "gelu_tanh" else 5e-4)  # ggml looks GELU up in a float16 table
