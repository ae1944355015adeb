"""What each token adds to the text, as bytes: the ground that streaming and whole decoding both stand on.

Tokens are not text: half a character, or a space that only some positions show. As bytes they simply add up, so a
stream over them is exact, costs the same at token 10 and 10,000,000, and remembers at most three bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer

from backends.errors import UnsupportedModelError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's printable stand-in for each byte, as character -> byte (Radford et al. 2019, `encoder.py`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


class TokenPieces:
    """Bytes of each token of one tokenizer.

    Attributes:
        strips_first_space: the text begins without the space its first token is spelled with.
    """

    def __init__(self, tokenizer: Tokenizer, hidden_ids: Iterable[int]) -> None:
        """Read how the tokenizer decodes.

        Args:
            tokenizer: any whose decoder is byte-level or SentencePiece-like.
            hidden_ids: tokens that show nothing (end of turn and its kind).

        Raises:
            UnsupportedModelError: the decoder is of another kind, by name.
        """
        self._tokenizer = tokenizer
        self._added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
        self._steps = _decoder_steps(tokenizer)
        self.strips_first_space = any(_strips_first_space(step) for step in self._steps)
        self._is_byte_level = any(step["type"] == "ByteLevel" for step in self._steps)
        self._has_byte_tokens = any(step["type"] == "ByteFallback" for step in self._steps)
        self._pieces: dict[int, bytes] = dict.fromkeys(hidden_ids, b"")

    def __getitem__(self, token_id: int) -> bytes:
        """Return one token's bytes; nothing for ids outside the vocabulary (padding rows of the logits)."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._spell(token_id)
        return piece

    def _spell(self, token_id: int) -> bytes:
        if token_id < 0 or (token := self._tokenizer.id_to_token(token_id)) is None:
            return b""
        if self._is_byte_level:
            if token_id not in self._added and all(letter in _BYTE_OF for letter in token):
                return bytes(_BYTE_OF[letter] for letter in token)
            return token.encode()
        if self._has_byte_tokens and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        for step in self._steps:
            token = _replaced(step, token)
        return token.encode()


def _decoder_steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return the decoder's steps as their JSON, flattened.

    Raises:
        UnsupportedModelError: a step cannot be said token by token.
    """
    state = None if tokenizer.decoder is None else json.loads(tokenizer.decoder.__getstate__())
    if state is None:
        raise UnsupportedModelError("This model's tokenizer does not say how its tokens become text (no decoder).")
    steps: list[dict[str, Any]] = state["decoders"] if state["type"] == "Sequence" else [state]
    for step in steps:
        if not _is_understood(step):
            raise UnsupportedModelError(
                f"This model's tokenizer turns tokens into text by {step['type']!r}, which cannot be streamed here."
            )
    return steps


def _is_understood(step: dict[str, Any]) -> bool:
    match step["type"]:
        case "ByteLevel" | "ByteFallback" | "Fuse" | "Metaspace":
            return True
        case "Replace":
            return "String" in step["pattern"]
        case "Strip":
            return bool(step["content"] == " " and step["start"] <= 1 and step["stop"] == 0)
        case _:
            return False


def _strips_first_space(step: dict[str, Any]) -> bool:
    match step["type"]:
        case "Strip":
            return bool(step["start"] == 1)
        case "Metaspace":
            return bool(step.get("prepend_scheme", "always") != "never")
        case _:
            return False


def _replaced(step: dict[str, Any], token: str) -> str:
    match step["type"]:
        case "Replace":
            return token.replace(str(step["pattern"]["String"]), str(step["content"]))
        case "Metaspace":
            return token.replace(str(step["replacement"]), " ")
        case _:
            return token
