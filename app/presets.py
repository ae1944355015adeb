"""Presets: settings under a name, one TOML file each, in the person's own folder.

A preset says how to write: sampling, system prompt, memory policy and limits. It does not say with what: model, backend
and device stay as they are, so a preset fits any model and any machine, and its file can be given to others. The names
in it are those of `settings.toml`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.chat_settings import NO_LIMIT, ChatSettings, chat_settings_from, to_json
from app.input_rules import clean_text
from app.settings import BUILT_IN
from backends.errors import BadRequestError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIELDS = (
    "policy",
    "window",
    "sinks",
    "system_prompt",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "repetition_window",
    "seed",
    "stop",
    "stop_in_reasoning",
    "max_new_tokens",
    "keep_writing",
    "max_minutes",
    "on_loop",
    "steering_notes",
    "steering_every_tokens",
)
"""What a preset may hold, names of `app.chat_settings`."""

MAX_NAME_CHARS = 60
MAX_FILE_CHARS = 1_000_000

_NAME = re.compile(r"[^\W_][\w .,()+-]*")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


class Presets:
    """The presets in a folder. Files are replaced atomically; ones put there by hand are as good.

    Args:
        folder: made with the first preset.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return the presets' names, in order."""
        return sorted((path.stem for path in self._folder.glob("*.toml")), key=str.casefold)

    def save(self, name: str, settings: ChatSettings) -> str:
        """Keep the preset part of settings, in place of one of that name; return the name as kept.

        Raises:
            BadRequestError: the name cannot be a file's.
        """
        name = checked_name(name)
        values = json.loads(to_json(settings))
        self._write(name, {field: values[field] for field in FIELDS})
        return name

    def apply(self, name: str, settings: ChatSettings) -> ChatSettings:
        """Return settings with what a preset says.

        Raises:
            BadRequestError: it is not there, or its file says something that cannot be; in one sentence.
        """
        return chat_settings_from(_checked(self.text(name), f"The preset {name}"), settings)

    def text(self, name: str) -> str:
        """Return a preset's file, to be given to others. Raises BadRequestError if it is not there."""
        path = self._path(name)
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            raise BadRequestError(f"There is no preset {name!r}.", "It was deleted; choose another.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadRequestError(f"The preset {name} cannot be read: {error}.") from error

    def add(self, name: str, text: str) -> str:
        """Keep a preset that came as a file, TOML or JSON, in place of one of that name; return the name as kept.

        Raises:
            BadRequestError: it is no preset, or says something that cannot be; in one sentence.
        """
        name = checked_name(name)
        self._write(name, _checked(text, f"The preset {name}"))
        return name

    def delete(self, name: str) -> None:
        """Delete a preset; none of that name is fine."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{checked_name(name)}.toml"

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        path = self._path(name)
        half = path.with_name(f".{path.name}.part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with half.open("w", encoding="utf-8", newline="\n") as file:
                file.write("".join(f"{field} = {_toml(value)}\n" for field, value in values.items()))
                file.flush()
                os.fsync(file.fileno())
            half.replace(path)
        except OSError as error:
            raise BadRequestError(f"The preset {name} cannot be kept: {error.strerror}.") from error


def checked_name(name: str) -> str:
    """Return a name without spaces around it.

    Raises:
        BadRequestError: it could not be a file's name everywhere, or would lead out of the folder.
    """
    name = clean_text(name).strip().removesuffix(".toml").removesuffix(".json").rstrip(". ")
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        raise BadRequestError(
            f"A preset cannot be called {name[:80]!r}.",
            f"Use letters, digits, spaces and . , ( ) + - _ after a letter or digit, at most {MAX_NAME_CHARS}.",
        )
    return name


def _checked(text: str, what: str) -> dict[str, Any]:
    """Return a preset's table, every value tried. Raises BadRequestError."""
    if len(text) > MAX_FILE_CHARS:
        raise BadRequestError(f"{what} is no preset: it has {len(text):,} characters.")
    try:
        table = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        foreign = next((field for field in table if field not in FIELDS), None)
        if foreign is not None:
            raise ValueError(f"a preset does not set {foreign!r}")
        chat_settings_from(table, BUILT_IN)
    except (ValueError, RecursionError) as error:  # not TOML or JSON, or a value of the wrong kind
        raise BadRequestError(f"{what} was not understood: {error}.", "Correct the file or save it anew.") from error
    return table


def _toml(value: object) -> str:
    """Return a value in TOML, whose strings are JSON's but for one more character to escape."""
    if value is None:
        return f'"{NO_LIMIT}"'
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
