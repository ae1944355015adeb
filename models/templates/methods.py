"""Methods of texts, lists and dicts that a template may call, and what each asks first.

One that is not in the tables cannot be called. Those that make something larger than they are given check its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import Environment
from jinja2.sandbox import SandboxedFormatter

from models.templates.sizes import (
    allow_characters,
    allow_text_of,
    bounded_list,
    joined_length,
    replaced_length,
    widths,
)

Check = Callable[..., "tuple[Any, ...] | None"]

_NAMES: dict[type, frozenset[str]] = {
    str: frozenset(
        {"upper", "lower", "title", "capitalize", "swapcase", "casefold"}
        | {"strip", "lstrip", "rstrip", "removeprefix", "removesuffix"}
        | {"split", "rsplit", "splitlines", "partition", "rpartition", "join", "replace", "expandtabs"}
        | {"startswith", "endswith", "find", "rfind", "index", "rindex", "count"}
        | {"isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric"}
        | {"isprintable", "isspace", "istitle", "isupper"}
        | {"center", "ljust", "rjust", "zfill"}
    ),
    list: frozenset({"count", "index", "copy"}),
    tuple: frozenset({"count", "index"}),
    range: frozenset({"count", "index"}),
    dict: frozenset({"get", "items", "keys", "values", "copy"}),
    int: frozenset({"bit_length", "is_integer"}),
    float: frozenset({"is_integer"}),
}


def is_allowed(method: BuiltinMethodType | MethodType) -> bool:
    """Tell whether a template may call a method of a built-in value."""
    kind = type(method.__self__)
    return any(method.__name__ in names for base, names in _NAMES.items() if issubclass(kind, base))


def checked_method(method: BuiltinMethodType | MethodType) -> Callable[..., Any]:
    """Return an allowed method that raises TemplateLimitError for what would be too large."""
    owner = method.__self__
    if isinstance(owner, str) and (check := _CHECKS.get(method.__name__)) is not None:
        return partial(_call_checked, method, check, owner)
    return method


def _call_checked(method: Callable[..., Any], check: Check, owner: str, *args: Any, **kwargs: Any) -> Any:
    new_args = check(owner, *args, **kwargs)
    return method(*(args if new_args is None else new_args), **kwargs)


def _replace(text: str, old: str, new: str, count: int = -1) -> None:
    allow_characters(replaced_length(text, old, new, count))


def _join(text: str, values: Iterable[Any]) -> tuple[list[Any]]:
    items = bounded_list(values)
    allow_characters(joined_length(items, text))
    return (items,)


def _pad(text: str, width: int, fill: str = " ") -> None:
    allow_characters(width)


def _expand_tabs(text: str, tabsize: int = 8) -> None:
    allow_characters(len(text) + text.count("\t") * max(tabsize, 0))


_CHECKS: dict[str, Check] = {
    "replace": _replace,
    "join": _join,
    "center": _pad,
    "ljust": _pad,
    "rjust": _pad,
    "zfill": _pad,
    "expandtabs": _expand_tabs,
}
"""What each asks before it is called; one that has used up its arguments returns new ones."""


class BoundFormat:
    """`format` or `format_map` of one text.

    Args:
        environment: decides which attributes the fields may name.
    """

    def __init__(self, environment: Environment, method: BuiltinMethodType | MethodType) -> None:
        self._environment = environment
        self._layout = str(method.__self__)
        self._takes_mapping = method.__name__ == "format_map"

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        """Return the text with its fields filled in. Raises TemplateLimitError if it would be too long."""
        formatter = _Formatter(self._environment, len(self._layout))
        if not self._takes_mapping:
            return formatter.vformat(self._layout, args, kwargs)
        if kwargs or len(args) != 1:
            raise TypeError("format_map() takes exactly one argument")
        mapping: Mapping[str, Any] = args[0]
        return formatter.vformat(self._layout, (), mapping)


class _Formatter(SandboxedFormatter):
    """Adds up what it has written.

    Args:
        num_characters: of the layout itself.
    """

    def __init__(self, environment: Environment, num_characters: int) -> None:
        super().__init__(environment)
        self._num_characters = num_characters

    def convert_field(self, value: Any, conversion: Any) -> Any:
        allow_text_of(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        allow_characters(self._num_characters + widths(format_spec))
        allow_text_of(value)
        written: str = super().format_field(value, format_spec)
        self._num_characters += len(written)
        allow_characters(self._num_characters)
        return written
