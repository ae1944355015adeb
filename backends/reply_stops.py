"""Stop strings of one reply: they wait until its reasoning has closed, and find control tokens by their ids.

Every backend puts its decoded text through one `ReplyStops` a reply, so that all of them end it at the same place. The
matching itself is `backends.stop_strings`; how reasoning is marked is `models.reasoning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from backends.requests import GenerationRequest
from backends.stop_strings import StopMatcher
from models.reasoning import ReasoningSplitter, opening_of

PROMPT_END_TOKENS = 32
"""Enough of a prompt's end to hold the mark that opens reasoning, spelled letter by letter, and white space behind."""

_FIRST_SYMBOL = 0xD800  # halves of characters, which no decoded text holds


class ReplyStops:
    """Lets the text of a reply through up to the earliest stop string.

    A hidden control token shows nothing in the text. Where a stop string names one, the token is matched as one symbol,
    so it is found by its id and never by a part of its name.

    Args:
        stops: strings that end the reply.
        control: names of hidden control tokens by id, at least of those that the stop strings name.
        reasoning: has taken in what the reply holds already; stop strings wait until it tells of an answer. None
            where they count from the start.
    """

    def __init__(
        self, stops: Iterable[str], control: Mapping[int, str], reasoning: ReasoningSplitter | None = None
    ) -> None:
        self._symbols = {token: chr(_FIRST_SYMBOL + place) for place, token in enumerate(control)}
        self._hidden = str.maketrans(dict.fromkeys(self._symbols.values()))
        names = sorted(control.items(), key=lambda each: -len(each[1]))  # one name may be part of another
        self._matcher = StopMatcher(self._with_symbols(stop, names) for stop in stops)
        self._reasoning = reasoning
        self._undecided = ""  # text of which it is not known yet whether it begins reasoning or the answer
        self._undecided_at = 0 if reasoning is None else reasoning.num_chars

    @property
    def matched(self) -> bool:
        """Whether a stop string was found; `push` returns nothing more."""
        return self._matcher.matched

    @property
    def holds_text(self) -> bool:
        """Whether text is held back."""
        return bool(self._undecided) or self._matcher.holds_text

    def push(self, text: str, token: int | None = None) -> str:
        """Take the text that a token completes; return what is now known to lie before any stop string."""
        if token is not None:
            text += self._symbols.get(token, "")
        return self._shown(self._matcher.push(text) if self._reasoning is None else self._wait(self._reasoning, text))

    def flush(self) -> str:
        """Return what was held back: the text has ended."""
        rest = self._matcher.push(self._undecided)
        self._undecided = ""
        return self._shown(rest + self._matcher.flush())

    def _wait(self, reasoning: ReasoningSplitter, text: str) -> str:
        """Let reasoning and its marks through; from the first character of the answer on, stop strings count."""
        self._undecided += text
        answer_at = next((piece.start for piece in reasoning.push(text) if not piece.is_reasoning), None)
        if answer_at is None and reasoning.is_undecided:
            return ""
        held, self._undecided = self._undecided, ""
        if answer_at is None:
            self._undecided_at += len(held)
            return held
        self._reasoning = None
        num_before = max(0, answer_at - self._undecided_at)
        return held[:num_before] + self._matcher.push(held[num_before:])

    def _with_symbols(self, stop: str, names: Iterable[tuple[int, str]]) -> str:
        for token, name in names:
            stop = stop.replace(name, self._symbols[token])
        return stop

    def _shown(self, text: str) -> str:
        return text.translate(self._hidden) if self._hidden else text


def reply_stops(
    request: GenerationRequest, opening: str, prompt_end: str, control: Mapping[int, str] | None = None
) -> ReplyStops:
    """Return the stops of a reply about to be written.

    Args:
        opening: mark of reasoning that the model's template ends a prompt with; empty for none.
        prompt_end: how this prompt ends, its control tokens by name; see `PROMPT_END_TOKENS`.
        control: see `ReplyStops`.
    """
    reasoning = None
    if request.stop and not request.stop_in_reasoning:
        last = request.messages[-1] if request.messages else None
        is_continued = last is not None and last.role == "assistant" and not request.raw
        reasoning = ReasoningSplitter(opening if is_continued else opening_of(prompt_end))
        if last is not None and is_continued and any(not piece.is_reasoning for piece in reasoning.push(last.text)):
            reasoning = None
    return ReplyStops(request.stop, control or {}, reasoning)


def named_control_tokens(
    stops: Iterable[str],
    encode: Callable[[str], list[int]],
    piece: Callable[[int], bytes],
    name: Callable[[int], bytes],
) -> dict[int, str]:
    """Return the hidden control tokens whose names occur in stop strings.

    Args:
        encode: ids of a text; control tokens spelled in it become those tokens.
        piece: bytes of a token, none for a hidden one.
        name: bytes of a token, or its name where it has none.
    """
    found: dict[int, str] = {}
    for stop in stops:
        for token in encode(stop):
            spelled = name(token).decode("utf-8", "replace")
            if not piece(token) and spelled and spelled in stop:
                found[token] = spelled
    return found
