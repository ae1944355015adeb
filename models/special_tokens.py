"""Ids that begin a sequence, end a reply or show nothing, from GGUF keys or a Hugging Face folder's JSON files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from models.end_tokens import END_TOKENS, ends_reply
from models.gguf_reader import GgufFile
from models.pre_tokenizers import PRE_TOKENIZERS
from models.token_names import folder_token_names, gguf_token_id, read_json
from models.vocabulary import TokenType, Vocabulary


@dataclass(frozen=True)
class SpecialTokens:
    """Ids with a meaning.

    Attributes:
        bos_id: begins a sequence; None where the model has none.
        eos_ids: each ends a reply.
        adds_bos: whether the model expects BOS before a text that does not begin with it.
    """

    bos_id: int | None
    eos_ids: tuple[int, ...]
    adds_bos: bool


def gguf_special_tokens(gguf: GgufFile, vocabulary: Vocabulary) -> SpecialTokens:
    """Read the ids from a GGUF file's `tokenizer.ggml` keys and its control tokens."""
    bos_id = gguf_token_id(gguf, "bos")
    named = (gguf_token_id(gguf, name) for name in ("eos", "eot", "eom"))
    ends = {token_id for token_id in named if token_id is not None} | set(_end_token_ids(vocabulary))
    by_score = vocabulary.merges is None
    default_adds_bos = by_score or PRE_TOKENIZERS[vocabulary.pre_tokenizer].adds_bos
    adds_bos = bool(gguf.metadata.get("tokenizer.ggml.add_bos_token", default_adds_bos))
    return SpecialTokens(bos_id, tuple(sorted(ends)), adds_bos and bos_id is not None)


def _end_token_ids(vocabulary: Vocabulary) -> list[int]:
    """Return the tokens whose text says that they end a reply."""
    listed = ((text, vocabulary.ids[text]) for text in END_TOKENS if text in vocabulary.ids)
    return [
        token_id
        for text, token_id in listed
        if (kind := vocabulary.types[token_id]) in (TokenType.CONTROL, TokenType.USER_DEFINED)
        and ends_reply(text, kind == TokenType.CONTROL, vocabulary.ids)
    ]


def _folder_end_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the added tokens whose text says that they end a reply."""
    added = {token.content: (index, token) for index, token in tokenizer.get_added_tokens_decoder().items()}
    return [index for text, (index, token) in added.items() if ends_reply(text, token.special, added)]


def folder_special_tokens(folder: Path, tokenizer: Tokenizer) -> SpecialTokens:
    """Read the ids from the tokenizer's special tokens and what a folder's JSON files name.

    Those are `tokenizer_config.json`, `special_tokens_map.json`, `generation_config.json` and `config.json`.

    Raises:
        ModelFileError: one of them is not JSON.
    """
    settings = read_json(folder / "tokenizer_config.json")
    config = read_json(folder / "config.json")
    config = config | config.get("text_config", {})
    generation = read_json(folder / "generation_config.json")
    names = folder_token_names(folder)
    bos_id = tokenizer.token_to_id(names.get("bos_token", ""))
    if bos_id is None:
        bos_id = _first_int(generation.get("bos_token_id"), config.get("bos_token_id"))
    ends = {token_id for source in (generation, config) for token_id in _ints(source.get("eos_token_id"))}
    named = (tokenizer.token_to_id(names.get(f"{kind}_token", "")) for kind in ("eos", "eot", "eom"))
    ends.update(token_id for token_id in named if token_id is not None)
    ends.update(_folder_end_ids(tokenizer))
    return SpecialTokens(bos_id, tuple(sorted(ends)), _adds_bos(tokenizer, settings, bos_id))


def _adds_bos(tokenizer: Tokenizer, settings: dict[str, Any], bos_id: int | None) -> bool:
    if bos_id is None:
        return False
    if isinstance(flag := settings.get("add_bos_token"), bool):
        return flag
    return list(tokenizer.encode("a", add_special_tokens=True).ids[:1]) == [bos_id]


def _ints(value: object) -> Sequence[int]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool)]


def _first_int(*values: object) -> int | None:
    return next((number for value in values for number in _ints(value)), None)
