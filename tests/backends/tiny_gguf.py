"""Tiny GGUF files with random weights, for what the real models cannot show: other layer patterns, broken weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, CONVOLVED = 32, 4, 2, 16, 64, 3
_SPECIAL = ("<unk>", "<s>", "</s>")
_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
VOCAB_SIZE = len(_SPECIAL) + 256


def write_tiny_gguf(
    path: Path,
    architecture: str = "gemma3",
    sliding_window: int = 64,
    sliding_pattern: int | None = None,
    num_layers: int = 4,
    context_tokens: int = 4096,
    fill: float | None = None,
    deaf_layers: Sequence[int] = (),
    control: Sequence[str] = (),
    eos_id: int = 2,
    more_tokens: Sequence[tuple[str, gguf.TokenType]] = (),
) -> Path:
    """Write a model of one token a byte.

    Args:
        architecture: "gemma3", "llama", or "lfm2", whose even layers are short convolutions with a state.
        sliding_window: written for gemma3 only.
        sliding_pattern: every n-th layer is full; 0 slides them all; None leaves it to llama.cpp (6 for gemma3).
        deaf_layers: whose attention has no effect, so that what later layers cache depends on the token alone.
        control: control tokens behind the bytes.
        more_tokens: put behind the others; their weights are the largest, so that they are often the likeliest.
        fill: value of every weight of the last layer's feed-forward block instead of random ones.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(context_tokens)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(num_layers)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    hybrid = architecture == "lfm2"
    writer.add_head_count_kv([KV_HEADS * (layer % 2) for layer in range(num_layers)] if hybrid else KV_HEADS)
    head_dim = _head_dim(architecture)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    if hybrid:
        writer.add_shortconv_l_cache(CONVOLVED)
        writer.add_vocab_size(VOCAB_SIZE)
    if architecture == "gemma3":
        writer.add_sliding_window(sliding_window)
        if sliding_pattern is not None:
            writer.add_uint32("gemma3.attention.sliding_window_pattern", sliding_pattern)
    _add_vocabulary(writer, eos_id, [*((text, gguf.TokenType.CONTROL) for text in control), *more_tokens])
    tensors = _tensors(architecture, num_layers, fill, deaf_layers, VOCAB_SIZE + len(control))
    more_rows = np.random.default_rng(1).normal(0, 3, (len(more_tokens), HIDDEN)).astype(np.float32)
    tensors["token_embd.weight"] = np.concatenate([tensors["token_embd.weight"], more_rows])
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocabulary(writer: gguf.GGUFWriter, eos_id: int, more_tokens: Sequence[tuple[str, gguf.TokenType]]) -> None:
    writer.add_tokenizer_model("llama")
    more_texts, more_types = [text for text, _ in more_tokens], [kind for _, kind in more_tokens]
    writer.add_token_list([*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *more_texts])
    writer.add_token_scores([0.0] * (VOCAB_SIZE + len(more_tokens)))
    unknown, control, byte = gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.BYTE
    writer.add_token_types([unknown, control, control, *[byte] * 256, *more_types])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(eos_id)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def _head_dim(architecture: str) -> int:
    return HIDDEN // HEADS if architecture == "lfm2" else HEAD_DIM  # llama.cpp wants heads that fill it there


def _tensors(
    architecture: str, num_layers: int, fill: float | None, deaf_layers: Sequence[int], vocab_size: int
) -> dict[str, npt.NDArray[np.float32]]:
    head_dim = _head_dim(architecture)
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> npt.NDArray[np.float32]:
        return random.normal(0, 0.3, (rows, columns)).astype(np.float32)

    norm = np.ones(HIDDEN, np.float32)
    hybrid = architecture == "lfm2"
    last_norm = "token_embd_norm.weight" if hybrid else "output_norm.weight"
    tensors = {"token_embd.weight": matrix(vocab_size, HIDDEN), last_norm: norm}
    for layer in range(num_layers):
        block = {
            "attn_norm": norm,
            "attn_q": matrix(HEADS * head_dim, HIDDEN),
            "attn_k": matrix(KV_HEADS * head_dim, HIDDEN),
            "attn_v": matrix(KV_HEADS * head_dim, HIDDEN),
            "attn_output": matrix(HIDDEN, HEADS * head_dim),
            "ffn_norm": norm,
            "ffn_gate": matrix(MLP, HIDDEN),
            "ffn_up": matrix(MLP, HIDDEN),
            "ffn_down": matrix(HIDDEN, MLP),
        }
        if hybrid and layer % 2 == 0:
            block = {name: tensor for name, tensor in block.items() if name not in _ATTENTION}
            block |= {
                "shortconv.conv": matrix(HIDDEN, CONVOLVED),
                "shortconv.in_proj": matrix(3 * HIDDEN, HIDDEN),
                "shortconv.out_proj": matrix(HIDDEN, HIDDEN),
            }
        elif hybrid:
            block |= {"attn_q_norm": np.ones(head_dim, np.float32), "attn_k_norm": np.ones(head_dim, np.float32)}
        if architecture == "gemma3":
            head_norm = np.full(head_dim, 2.0, np.float32)  # scores of some weight: attention that is not just a mean
            block |= {"attn_q_norm": head_norm, "attn_k_norm": head_norm}
            block |= {"post_attention_norm": norm, "post_ffw_norm": norm}
        if layer in deaf_layers:
            block["attn_output"] = np.zeros((HIDDEN, HEADS * head_dim), np.float32)
        if fill is not None and layer == num_layers - 1:
            block["ffn_down"] = np.full((HIDDEN, MLP), fill, np.float32)
        tensors |= {f"blk.{layer}.{name}.weight": tensor for name, tensor in block.items()}
    return tensors
