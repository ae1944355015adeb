"""Typed reading of a model's config: a wrong value becomes one sentence that names the file, the key and the value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from backends.errors import ModelFileError


class ConfigKeys:
    """A config with its defaults.

    A key that is present with null means null, as in transformers; only an absent key takes its default.

    Args:
        values: what the file says.
        source: how to name the file in an error.
        defaults: for keys the file does not mention.
    """

    def __init__(self, values: Mapping[str, Any], source: str, defaults: Mapping[str, Any] | None = None) -> None:
        self.source = source
        self._values = values
        self._defaults = defaults or {}

    def __contains__(self, key: str) -> bool:
        """Whether the file itself holds the key."""
        return key in self._values

    def get(self, key: str) -> Any:
        """Return the raw value; None for null, and for a key that is neither given nor has a default."""
        return self._values[key] if key in self._values else self._defaults.get(key)

    def integer(self, key: str, minimum: int = 1) -> int:
        """Return a whole number of at least `minimum`."""
        value = self.get(key)
        number = int(value) if _is_number(value) and float(value).is_integer() else None
        if number is None or number < minimum:
            raise self.wrong(key, f"a whole number of at least {minimum}")
        return number

    def integer_or_none(self, key: str, minimum: int = 1) -> int | None:
        return None if self.get(key) is None else self.integer(key, minimum)

    def number(self, key: str) -> float:
        """Return a finite number."""
        value = self.get(key)
        if not _is_number(value) or not math.isfinite(value):
            raise self.wrong(key, "a number")
        return float(value)

    def positive(self, key: str) -> float:
        """Return a finite number above 0."""
        value = self.get(key)
        if not _is_number(value) or not math.isfinite(value) or value <= 0:
            raise self.wrong(key, "a number above 0")
        return float(value)

    def positive_or_none(self, key: str) -> float | None:
        return None if self.get(key) is None else self.positive(key)

    def flag(self, key: str) -> bool:
        """Return true or false; null is false."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return bool(value)

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def items(self, key: str) -> tuple[Any, ...] | None:
        """Return a list's items; None for null or absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise self.wrong(key, "a list")
        return tuple(value)

    def numbers(self, key: str, length: int) -> tuple[float, ...]:
        """Return exactly `length` numbers above 0."""
        values = self.items(key) or ()
        if len(values) != length or not all(_is_number(value) and value > 0 for value in values):
            raise self.wrong(key, f"a list of {length} numbers above 0")
        return tuple(float(value) for value in values)

    def section(self, key: str) -> Mapping[str, Any] | None:
        """Return a nested object; None for null or absent."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(key, "an object")
        return value

    def wrong(self, key: str, expected: str) -> ModelFileError:
        """Make the error for a value that is not what it has to be."""
        value = repr(self.get(key))
        shown = value if len(value) <= 80 else value[:77] + "..."
        found = f"{key} is {shown}" if key in self else f"{key} is missing"
        return ModelFileError(f"{self.source}: {found}; it has to be {expected}.", "Check or download the file again.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
