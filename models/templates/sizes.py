"""The size of what a template asks for, told before it is made.

Knows values and counts only; which operations ask is the business of `models.templates.sandbox`.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any

from jinja2 import TemplateError

MAX_STEPS = 1_000_000
"""Loop steps and calls in one rendering; a chat of 1,000 messages needs a few thousand."""

MAX_ITEMS = 1_000_000
"""Longest list that one operation may make, and the longest text that one repetition may."""

MAX_NUMBER_BITS = 4096
"""Largest whole number to count with."""

_TIMES_WRITTEN = 16
"""A text passes through a macro, a block and a variable or two on its way to the prompt."""

_NUMBER_CHARACTERS = 400  # of the largest float, written out
_CONTAINERS = (list, tuple, set, frozenset, KeysView, ValuesView)
_DIGITS = re.compile(r"\d+")


class TemplateLimitError(TemplateError):
    """A template ran for too long, wrote too much or asked for something too large."""


@dataclass
class Budget:
    """Work one rendering may do.

    Attributes:
        characters: in the longest text.
        steps: loop steps and calls left.
        written: characters written so far, those in macros and blocks included.
    """

    characters: int
    steps: int = MAX_STEPS
    written: int = 0

    def spend_step(self) -> None:
        """Count one turn of a loop or one call."""
        self.steps -= 1
        if self.steps < 0:
            raise TemplateLimitError(f"it loops more than {MAX_STEPS:,} times")

    def spend_text(self, num_characters: int) -> None:
        """Count text that is written."""
        self.written += num_characters
        if self.written > _TIMES_WRITTEN * self.characters:
            raise self.too_long()

    def too_long(self) -> TemplateLimitError:
        """Return the refusal of a text."""
        return TemplateLimitError(f"it writes more than {self.characters:,} characters")


_budget: ContextVar[Budget] = ContextVar("budget")


@contextmanager
def spending(budget: Budget) -> Iterator[Budget]:
    """Let everything inside count against a budget."""
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)


def budget() -> Budget:
    """Return the budget of the rendering that is going on."""
    return _budget.get()


def allow_characters(num_characters: float) -> None:
    """Raise TemplateLimitError for a text that would be too long."""
    if num_characters > budget().characters:
        raise budget().too_long()


def allow_items(num_items: float) -> None:
    """Raise TemplateLimitError for a list that would be too long."""
    if num_items > MAX_ITEMS:
        raise TemplateLimitError(f"it makes a list of more than {MAX_ITEMS:,} items")


def allow_number(value: object) -> None:
    """Raise TemplateLimitError for a whole number that takes long to count with."""
    if isinstance(value, int) and value.bit_length() > MAX_NUMBER_BITS:
        raise TemplateLimitError("it counts with too large a number")


def allow_text_of(*values: object) -> None:
    """Raise TemplateLimitError if the values written one after the other would be too long."""
    allow_characters(sum(map(text_length, values)))


def bounded_list(values: Iterable[Any]) -> list[Any]:
    """Return the items of an iterable, which may make texts as it goes. Raises TemplateLimitError for too much."""
    items: list[Any] = []
    num_characters = 0
    for value in islice(values, MAX_ITEMS + 1):
        if isinstance(value, str):
            num_characters += len(value)
            allow_characters(num_characters)
        items.append(value)
    allow_items(len(items))
    return items


def text_length(value: object) -> int:
    """Return about how many characters a value has as text; counting ends where it would be refused.

    A list that holds another one twice, which does so itself, is small in memory and endless as text.
    """
    if isinstance(value, str):
        return len(value)
    limit = budget().characters
    length, waiting = 0, [value]
    while waiting and length <= limit:
        each = waiting.pop()
        match each:
            case str():
                length += len(each) + 2
            case bool() | float() | None:
                length += 20
            case int():
                length += 2 + each.bit_length() // 3
            case Mapping():
                length += 2 + 2 * len(each)
                waiting += each.keys()
                waiting += each.values()
            case ItemsView():
                length += 2 + 4 * len(each)
                waiting += (part for pair in each for part in pair)
            case _ if isinstance(each, _CONTAINERS):
                length += 2 + 2 * len(each)
                waiting += each
            case _:
                length += 100
    return length


def printf_length(layout: str, values: object) -> float:
    """Return at least as many characters as `layout % values` has."""
    largest: float = 0
    if isinstance(values, tuple):
        written = sum(text_length(each) + _NUMBER_CHARACTERS for each in values)
        largest = max((abs(each) for each in values if isinstance(each, int)), default=0)
    elif isinstance(values, Mapping):
        of_each = max((text_length(each) for each in values.values()), default=0) + _NUMBER_CHARACTERS
        written = text_length(values) + layout.count("%(") * of_each
    else:
        written = text_length(values) + _NUMBER_CHARACTERS
    return len(layout) + written + widths(layout) + layout.count("*") * largest


def widths(layout: str) -> float:
    """Return the sum of all numbers in a layout: each could be a width."""
    return sum(float(digits) for digits in _DIGITS.findall(layout))


def replaced_length(text: str, old: str, new: str, count: int | None = None) -> int:
    """Return how long a text is with `old` replaced, at most `count` times (None or below 0: everywhere)."""
    num_found = text.count(old)
    if count is not None and count >= 0:
        num_found = min(num_found, count)
    return len(text) + num_found * (len(new) - len(old))


def escaped_length(text: str) -> int:
    """Return how long a text is once it is escaped for HTML."""
    return len(text) + 4 * sum(map(text.count, "&'\"")) + 3 * sum(map(text.count, "<>"))


def joined_length(items: list[Any], separator: str) -> int:
    """Return how long items are with separators between them; counting ends where it would be refused."""
    length = len(separator) * max(len(items) - 1, 0)
    for item in items:
        length += text_length(item)
        if length > budget().characters:
            break
    return length
