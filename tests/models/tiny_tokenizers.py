"""Small tokenizers of both kinds: byte-level BPE with one token a non-ASCII byte, SentencePiece with byte fallback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

from models.vocabulary import TokenType, Vocabulary, build_tokenizer
from tests.models.gguf_files import write_gguf

BOS, EOS, TURN = "<s>", "</s>", "<|turn|>"
ASCII_TEXT = (
    "the quick brown fox jumps over the lazy dog. The end of the day, I'll say: don't! We've 1234567 things "
    "and 42 more; def f(x):\n    return x + 1\n\n  if it's fine, THE DOG'S HERE. hello world hello world\n\n\n"
    "ABCdef camelCase HTTPServer ..., (a[0] == b) && c != d  //  end\t\ttabs "
) * 3


@cache
def byte_level_tokens(cuts_words: bool = True) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (tokens, merges) of a byte-level BPE trained on ASCII, three control tokens first.

    Args:
        cuts_words: whether words were cut before training; if not, merges run across every boundary.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cuts_words)
    trainer = BpeTrainer(
        vocab_size=700,
        special_tokens=[BOS, EOS, TURN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=6,
        show_progress=False,
    )
    tokenizer.train_from_iterator([ASCII_TEXT], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tuple(tokens), tuple(" ".join(pair) for pair in model["merges"])


def byte_level_vocabulary(pre_tokenizer: str = "gpt-2", cuts_words: bool = True) -> Vocabulary:
    tokens, merges = byte_level_tokens(cuts_words)
    types = [TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3)
    return Vocabulary("tiny", tokens, types, merges=merges, pre_tokenizer=pre_tokenizer)


@cache
def sentencepiece_vocabulary(adds_space_prefix: bool = True) -> Vocabulary:
    """Return a vocabulary merged by score: three control tokens, 256 bytes, pieces by length and letters."""
    words = ["▁the", "▁quick", "▁hello", "▁world", "Hello", "world", "▁dog", "▁end", "▁▁", "▁▁▁▁", "ing", "▁de", "def"]
    parts = {
        word[start:stop] for word in words for start in range(len(word)) for stop in range(start + 2, len(word) + 1)
    }
    letters = sorted(set("▁ABCHTdefghijklmnopqrstuvwxyzabc.,!?:()'\n") - set("\n"))
    pieces = sorted(parts, key=lambda part: (len(part), part)) + letters
    tokens = ["<unk>", BOS, EOS, TURN, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    types = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 3, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(pieces)]
    scores = np.asarray([0.0] * 260 + [-float(place) for place in range(len(pieces))], np.float32)
    return Vocabulary("tiny", tokens, types, scores=scores, adds_space_prefix=adds_space_prefix, unknown_id=0)


def write_vocabulary_gguf(path: Path, vocabulary: Vocabulary, **metadata: Any) -> Path:
    """Write a GGUF file that holds a vocabulary and one small tensor."""
    keys: dict[str, Any] = {
        "tokenizer.ggml.model": "llama" if vocabulary.merges is None else "gpt2",
        "tokenizer.ggml.tokens": list(vocabulary.tokens),
        "tokenizer.ggml.token_type": [int(kind) for kind in vocabulary.types],
        "tokenizer.ggml.bos_token_id": vocabulary.ids[BOS],
        "tokenizer.ggml.eos_token_id": vocabulary.ids[EOS],
        ".context_length": 64,
        ".embedding_length": 32,
        ".block_count": 1,
        ".feed_forward_length": 32,
        ".attention.head_count": 1,
        ".attention.layer_norm_rms_epsilon": 1e-6,
    }
    if vocabulary.merges is None:
        assert vocabulary.scores is not None
        keys["tokenizer.ggml.scores"] = vocabulary.scores.tolist()
        keys["tokenizer.ggml.unknown_token_id"] = 0
        keys["tokenizer.ggml.add_space_prefix"] = vocabulary.adds_space_prefix
    else:
        keys["tokenizer.ggml.merges"] = list(vocabulary.merges)
        keys["tokenizer.ggml.pre"] = vocabulary.pre_tokenizer
    return write_gguf(path, "llama", keys | metadata, {"token_embd.weight": np.zeros((1, 32), np.float32)})


def write_folder(
    folder: Path, tokenizer: Tokenizer | None, adds_bos: bool = True, **files: Mapping[str, Any] | str | bytes
) -> Path:
    """Write a Hugging Face folder of one tiny weight file.

    Args:
        tokenizer: becomes tokenizer.json; with `adds_bos` its post-processor puts BOS first.
        files: further files by name with "__" for a dot; mappings are written as JSON.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Mapping[str, Any] | str | bytes] = {
        "config__json": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        "model__safetensors": b"\2\0\0\0\0\0\0\0{}",
    }
    contents.update(files)
    if tokenizer is not None:
        if adds_bos:
            bos_id = tokenizer.token_to_id(BOS)
            tokenizer.post_processor = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos_id)])
        contents["tokenizer__json"] = tokenizer.to_str()
    for name, content in contents.items():
        text = json.dumps(content) if isinstance(content, Mapping) else content
        path = folder / name.replace("__", ".")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def metaspace_tokenizer() -> Tokenizer:
    """Return the SentencePiece kind as newer Hugging Face files spell it: a space in front of the first word only."""
    tokenizer = build_tokenizer(sentencepiece_vocabulary())
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer
