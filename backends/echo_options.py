"""What the echo backend can be told to do.

Options of `LoadRequest.options`, all text:
    text: "document" (default: endless Markdown), "prompt" (the last user message again) or "script".
    script: for "script", a JSON list of pieces, one a token.
    rate: tokens a second, default 50; "max" is as fast as possible.
    prefill_rate: prompt tokens a second; default "max".
    end_after: tokens after which the reply ends by itself (unless told to keep writing).
    fail_at, fail_kind: fail once, before token `fail_at` of a reply (0 is during prefill), with "runtime" (default),
        "memory", "device" (as a GPU that is lost), "abort" or "kill" (both end the process).
    stall_at: wait before that token until cancelled.
    load_s: seconds that loading takes. load_error: sentence that loading fails with.
    reasoning_opening: mark that its prompts are said to end with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from backends.errors import BadRequestError


@dataclass(frozen=True)
class EchoOptions:
    """The options of this module's docstring, parsed."""

    text: str = "document"
    script: tuple[str, ...] = ()
    rate: float | None = 50.0
    prefill_rate: float | None = None
    end_after: int | None = None
    fail_at: int | None = None
    fail_kind: str = "runtime"
    stall_at: int | None = None
    load_s: float = 0.0
    load_error: str = ""
    reasoning_opening: str = ""

    @classmethod
    def parse(cls, options: dict[str, str]) -> EchoOptions:
        """Read options given as text. Raises BadRequestError naming the option at fault."""
        parsed: dict[str, object] = {}
        for name, value in options.items():
            if name not in _PARSERS:
                raise BadRequestError(
                    f"The echo backend has no option {name!r}.", f"Choose from {', '.join(sorted(_PARSERS))}."
                )
            try:
                parsed[name] = _PARSERS[name](value)
            except ValueError as error:
                raise BadRequestError(
                    f"Option {name!r} of the echo backend cannot be {value!r}.", str(error)
                ) from error
        return cls(**parsed)  # type: ignore[arg-type]


def _rate(value: str) -> float | None:
    if value == "max":
        return None
    if (rate := float(value)) > 0:
        return rate
    raise ValueError('Give tokens a second above 0, or "max".')


def _whole(value: str) -> int:
    if (number := int(value)) >= 0:
        return number
    raise ValueError("Give a whole number of 0 or more.")


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value in names:
            return value
        raise ValueError(f"Choose from {', '.join(names)}.")

    return parse


def _script(value: str) -> tuple[str, ...]:
    pieces = json.loads(value)
    if isinstance(pieces, list) and pieces and all(isinstance(piece, str) for piece in pieces):
        return tuple(pieces)
    raise ValueError("Give a JSON list of texts, at least one.")


_PARSERS: dict[str, Callable[[str], object]] = {
    "text": _one_of("document", "prompt", "script"),
    "script": _script,
    "rate": _rate,
    "prefill_rate": _rate,
    "end_after": _whole,
    "fail_at": _whole,
    "fail_kind": _one_of("runtime", "memory", "device", "abort", "kill"),
    "stall_at": _whole,
    "load_s": float,
    "load_error": str,
    "reasoning_opening": str,
}
