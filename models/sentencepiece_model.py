"""SentencePiece's `tokenizer.model`, read without its library: a protocol-buffer message with a list of pieces.

Fields: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from backends.errors import ModelFileError, UnsupportedModelError
from models.vocabulary import TokenType, Vocabulary

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_TRAINER_MODEL_TYPE, _BPE = 3, 2
_ADDS_DUMMY_PREFIX = 3


def read_sentencepiece(path: Path) -> Vocabulary:
    """Read the vocabulary of a BPE `tokenizer.model`.

    Raises:
        ModelFileError: the file is damaged.
        UnsupportedModelError: it is a unigram, word or character model.
    """
    try:
        return _read(path)
    except (OSError, ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise ModelFileError(
            f"{path} cannot be read as a SentencePiece model: {error}.", "Download it again."
        ) from error


def _read(path: Path) -> Vocabulary:
    tokens: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    model_type, adds_prefix = 1, True  # the format's defaults: unigram, with a space put in front
    for field, value in _fields(path.read_bytes()):
        if field == _PIECES and isinstance(value, bytes):
            piece = dict(_fields(value))
            tokens.append(_as_text(piece.get(_PIECE_TEXT, b"")))
            scores.append(_as_float(piece.get(_PIECE_SCORE, 0)))
            types.append(_as_int(piece.get(_PIECE_TYPE, TokenType.NORMAL)))
        elif field == _TRAINER and isinstance(value, bytes):
            model_type = _as_int(dict(_fields(value)).get(_TRAINER_MODEL_TYPE, 1))
        elif field == _NORMALIZER and isinstance(value, bytes):
            adds_prefix = bool(dict(_fields(value)).get(_ADDS_DUMMY_PREFIX, 1))
    if not tokens:
        raise ValueError("it lists no pieces")
    if model_type != _BPE:
        raise UnsupportedModelError(
            f"{path} is not a BPE model, the only kind of SentencePiece model read here.",
            "Add the model's tokenizer.json to the folder.",
        )
    unknown = types.index(TokenType.UNKNOWN) if TokenType.UNKNOWN in types else None
    return Vocabulary(
        source=str(path),
        tokens=tokens,
        types=types,
        scores=np.asarray(scores, np.float32),
        adds_space_prefix=adds_prefix,
        unknown_id=unknown,
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of one message: varints as int, everything else as its bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        match key & 7:
            case 0:
                value, place = _varint(message, place)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, place = _varint(message, place)
            case 5:
                size = 4
            case kind:
                raise ValueError(f"wire type {kind} at byte {place}")
        if place + size > len(message):
            raise ValueError("it ends in the middle of a field")
        yield key >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def _as_text(value: int | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else ""


def _as_float(value: int | bytes) -> float:
    return float(struct.unpack("<f", value)[0]) if isinstance(value, bytes) else float(value)


def _as_int(value: int | bytes) -> int:
    return value if isinstance(value, int) else int.from_bytes(value, "little")
