"""Texts of the special tokens by the names chat templates use ("bos_token"), without building a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backends.errors import ModelFileError
from models.gguf_reader import GgufFile

_GGUF_KEYS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_SENTENCEPIECE_DEFAULTS = {"bos": 1, "eos": 2, "unknown": 0}


def gguf_token_id(gguf: GgufFile, name: str) -> int | None:
    """Return the id of a special token ("bos", "eos", "unknown", "padding", "eot", "eom").

    None where the file names none, or one outside its vocabulary.
    """
    meta = gguf.metadata
    by_score = meta.get("tokenizer.ggml.model") == "llama"
    default = _SENTENCEPIECE_DEFAULTS.get(name) if by_score else None
    value = meta.get(f"tokenizer.ggml.{name}_token_id", default)
    return int(value) if value is not None and int(value) < len(meta.get("tokenizer.ggml.tokens", ())) else None


def gguf_token_names(gguf: GgufFile) -> dict[str, str]:
    """Return name -> text of the special tokens a GGUF file has."""
    ids = {name: gguf_token_id(gguf, key) for name, key in _GGUF_KEYS.items()}
    return {
        name: gguf.metadata["tokenizer.ggml.tokens"][token_id] for name, token_id in ids.items() if token_id is not None
    }


def folder_token_names(folder: Path) -> dict[str, str]:
    """Return name -> text from `tokenizer_config.json`, or else `special_tokens_map.json`.

    They spell a token as a string or as an object.

    Raises:
        ModelFileError: one of them is not JSON.
    """
    names: dict[str, str] = {}
    listed = read_json(folder / "special_tokens_map.json") | read_json(folder / "tokenizer_config.json")
    for name, value in listed.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            names[name] = text
    return names


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; an empty one where there is no such file.

    Raises:
        ModelFileError: it is not JSON or cannot be read.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}.", "Download it again.") from error
    return content if isinstance(content, dict) else {}
