"""Sampling settings that are lists, as text: on the command line, in the page, in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

LogitBias = tuple[tuple[int | str, float], ...]

NEVER = "-inf"
"""How text and JSON, which has no infinity, write the bias of a token that never comes."""


def parse_logit_bias(lines: Iterable[str]) -> LogitBias:
    """Read `TOKEN=BIAS` lines: a number is a token's id, anything else its text, in double quotes where it needs them.

    Raises:
        ValueError: a line is of another form.
    """
    return tuple(_parse_line(line.strip()) for line in lines if line.strip())


def logit_bias_lines(logit_bias: LogitBias) -> list[str]:
    """Return lines that `parse_logit_bias` reads back."""
    return [f"{_written(token)}={bias:g}" for token, bias in logit_bias]


def logit_bias_from(value: object) -> LogitBias:
    """Read pairs of an id or text and a bias, as TOML and JSON hold them, or lines.

    Raises:
        ValueError: it is neither.
    """
    if not isinstance(value, (list, tuple)):
        raise ValueError('give a list such as [["word", -2.5], [11, "-inf"]]')
    return tuple(_parse_line(each) if isinstance(each, str) else _pair(each) for each in value)


def logit_bias_json(logit_bias: Iterable[tuple[int | str, float]]) -> list[list[int | str | float]]:
    """Return pairs that strict JSON can hold."""
    return [[token, NEVER if bias == -math.inf else bias] for token, bias in logit_bias]


def spelled_breakers(breakers: Iterable[str]) -> list[str]:
    """Return the texts with line ends and tabs written as \\n and \\t, so that each is one line."""
    return [each.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t") for each in breakers]


def read_breakers(lines: Iterable[str]) -> list[str]:
    """Read what `spelled_breakers` writes; empty lines are none."""
    marks = {"\\\\": "\\", "\\n": "\n", "\\t": "\t"}
    breakers = []
    for line in filter(None, lines):
        places = range(len(line))
        text, skip = "", False
        for place in places:
            if skip:
                skip = False
                continue
            skip = line[place : place + 2] in marks
            text += marks[line[place : place + 2]] if skip else line[place]
        breakers.append(text)
    return breakers


def _parse_line(line: str) -> tuple[int | str, float]:
    token, equals, bias = line.rpartition("=")
    if not equals or not token:
        raise ValueError(f"logit bias {line!r} has another form; write TOKEN=BIAS, such as word=-2.5 or 11=-inf")
    return _token(token.strip() if not token.startswith('"') else token), _bias(bias.strip())


def _token(text: str) -> int | str:
    if text.isdecimal():
        return int(text)
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError as error:
            raise ValueError(f"logit bias names {text}, which is no text in double quotes") from error
    return text


def _written(token: int | str) -> str:
    if isinstance(token, int):
        return str(token)
    needs_quotes = token.isdecimal() or token.startswith('"') or token != token.strip() or not token.isprintable()
    return json.dumps(token, ensure_ascii=False) if needs_quotes else token


def _pair(value: object) -> tuple[int | str, float]:
    if isinstance(value, (list, tuple)) and len(value) == 2:
        token, bias = value
        if isinstance(token, (int, str)) and not isinstance(token, bool):
            return token, _bias(bias)
    raise ValueError(f"{value!r} is no pair of a token and a number")


def _bias(value: object) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            pass
    raise ValueError(f"a logit bias of {value!r} is no number")
