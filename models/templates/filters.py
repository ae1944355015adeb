"""Filters a template may use, and what each asks before it makes anything.

The list is Jinja's, without those that only web pages need and the random one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from jinja2 import pass_environment, pass_eval_context
from jinja2.environment import Environment
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.nodes import EvalContext

from models.templates.sizes import (
    TemplateLimitError,
    allow_characters,
    allow_items,
    allow_number,
    allow_text_of,
    bounded_list,
    escaped_length,
    joined_length,
    printf_length,
    replaced_length,
)

Check = Callable[..., None]

_MAX_PRECISION = 300  # decimal places of the smallest floats
_MAX_JSON_INDENT = 100


def filters() -> dict[str, Callable[..., Any]]:
    """Return the filters by name."""
    plain = {name: FILTERS[name] for name in _AS_THEY_ARE}
    checked = {name: _checked(FILTERS[name], check) for name, check in _CHECKS.items()}
    return plain | checked | {"join": _join, "list": bounded_list, "sum": _sum, "tojson": _to_json}


_AS_THEY_ARE = (
    *("abs", "attr", "count", "d", "default", "dictsort", "first", "groupby", "items", "last", "length"),
    *("map", "max", "min", "reject", "rejectattr", "reverse", "safe", "select", "selectattr", "sort", "unique"),
)
"""They make nothing that is larger than what they are given."""


def _checked(filter_: Callable[..., Any], check: Check) -> Callable[..., Any]:
    """Return a filter that asks first. `wraps` keeps the mark by which Jinja passes an environment before the value."""
    num_passed = int(hasattr(filter_, "jinja_pass_arg"))

    @wraps(filter_)
    def asking_first(*args: Any, **kwargs: Any) -> Any:
        check(*args[num_passed:], **kwargs)
        return filter_(*args, **kwargs)

    return asking_first


def _text(value: object, *args: object, **kwargs: object) -> None:
    allow_text_of(value)


def _escape(value: object) -> None:
    _text(value)
    allow_characters(escaped_length(str(value)))


def _center(value: object, width: int = 80) -> None:
    _text(value)
    allow_characters(width)


def _format(value: object, *args: object, **kwargs: object) -> None:
    _text(value)
    allow_characters(printf_length(str(value), kwargs or args))


def _indent(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> None:
    _text(value)
    num_lines = len(value.splitlines()) + 1
    allow_characters(len(value) + num_lines * (len(width) if isinstance(width, str) else max(width, 0)))


def _replace(value: object, old: object, new: object, count: int | None = None) -> None:
    allow_text_of(value)
    allow_text_of(old)
    allow_text_of(new)
    allow_characters(replaced_length(str(value), str(old), str(new), count))


def _truncate(value: object, length: int = 255, killwords: bool = False, end: str = "...", leeway: object = 5) -> None:
    allow_text_of(value, end)


def _batch(value: object, linecount: int, fill_with: object = None) -> None:
    allow_items(linecount)


def _slice(value: object, slices: int, fill_with: object = None) -> None:
    allow_items(slices)


def _round(value: object, precision: int = 0, method: str = "common") -> None:
    allow_number(value)
    if abs(precision) > _MAX_PRECISION:
        raise TemplateLimitError(f"it rounds to more than {_MAX_PRECISION} decimal places")


_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("capitalize", "float", "int", "lower", "string", "title", "trim", "upper", "wordcount"), _text),
    **dict.fromkeys(("e", "escape"), _escape),
    "batch": _batch,
    "center": _center,
    "format": _format,
    "indent": _indent,
    "replace": _replace,
    "round": _round,
    "slice": _slice,
    "truncate": _truncate,
}


@pass_eval_context
def _join(eval_context: EvalContext, value: Iterable[Any], d: object = "", attribute: str | int | None = None) -> Any:
    """`join` of Jinja, the length told before."""
    if attribute is not None:
        value = map(make_attrgetter(eval_context.environment, attribute), value)
    items = bounded_list(value)
    allow_text_of(d)
    allow_characters(joined_length(items, str(d)))
    return FILTERS["join"](eval_context, items, d)


@pass_environment
def _sum(environment: Environment, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    """`sum` of Jinja for numbers; lists are added up only as far as lists go."""
    if attribute is not None:
        iterable = map(make_attrgetter(environment, attribute), iterable)
    items = bounded_list(iterable)
    for item in (start, *items):
        allow_number(item)
    allow_items(sum(len(item) for item in (start, *items) if isinstance(item, (list, tuple))))
    return sum(items, start)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter escapes for HTML, which models were not trained on."""
    if indent is not None and (len(indent) if isinstance(indent, str) else indent) > _MAX_JSON_INDENT:
        raise TemplateLimitError(f"it indents JSON by more than {_MAX_JSON_INDENT}")
    allow_text_of(value, *(separators or ()))
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    chunks: list[str] = []
    length = 0
    for chunk in encoder.iterencode(value):
        length += len(chunk)
        allow_characters(length)
        chunks.append(chunk)
    return "".join(chunks)
