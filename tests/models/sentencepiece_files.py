"""Writes SentencePiece `tokenizer.model` files, as protocol-buffer bytes."""

from __future__ import annotations

import struct
from pathlib import Path

from models.vocabulary import Vocabulary


def write_sentencepiece(path: Path, vocabulary: Vocabulary, model_type: int = 2) -> Path:
    """Write a vocabulary with scores. `model_type` 1 is unigram, 2 BPE."""
    assert vocabulary.scores is not None
    message = b""
    for token, score, kind in zip(vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True):
        piece = _bytes(1, token.encode()) + _key(2, 5) + struct.pack("<f", score) + _key(3, 0) + _varint(kind)
        message += _bytes(1, piece)
    trainer = _key(3, 0) + _varint(model_type) + _key(4, 0) + _varint(len(vocabulary.tokens))
    normalizer = _bytes(1, b"identity") + _key(3, 0) + _varint(int(vocabulary.adds_space_prefix))
    path.write_bytes(message + _bytes(2, trainer) + _bytes(3, normalizer))
    return path


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])
