"""Telling a model's reasoning from its answer, in text that comes in pieces of any size.

Models mark their reasoning in several ways: `<think>...</think>` and its relatives, opened by the model or already by
the chat template at the end of the prompt, and gpt-oss's channels. Only marks before the answer count: once it has
begun, the same characters are its text (a reply about these very marks, for one). Reasoning that nothing opened is
found by `models.lone_closing`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

GEMMA_CHANNEL = "<|channel>"
"""The token that opens Gemma 4's channel; the word behind it names the channel."""

PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "[THINK]": "[/THINK]",
    "<seed:think>": "</seed:think>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    f"{GEMMA_CHANNEL}thought": "<channel|>",
}
"""Marks that open and close reasoning."""

CHANNEL, BODY, TURN, END = "<|channel|>", "<|message|>", "<|start|>", "<|end|>"
"""gpt-oss: `<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...`. Our tokenizers
show no `<|end|>`; others do."""

CHANNEL_STARTS = (CHANNEL, TURN, "to=")
"""What a reply of gpt-oss may begin with: it can name a tool before the channel."""

FINAL_CHANNEL = "final"

CONTROL_MARKS = frozenset((*PAIRS, *PAIRS.values(), CHANNEL, BODY, TURN, "<|constrain|>", GEMMA_CHANNEL))
"""Tokens that are shown where they are control tokens too: hidden, reasoning could not be told from the answer."""

_CHANNEL_MARKS = (END, TURN, CHANNEL)
_CHANNEL_NAME = re.compile(r"\s*(\w*)")
_RECIPIENT = re.compile(r"to=[\w.-]{0,200}\s{0,2}")
_SEGMENT_BREAK = "\n\n"

_MAX_SPACE = 1_000
"""White space held back for what may follow it; a model that writes nothing else must not be read again and again."""

_State = Literal["start", "opened", "reasoning", "header", "between", "after", "answer"]


@dataclass(frozen=True)
class Piece:
    """Text of one kind. `start` is its offset in the whole text, marks and all."""

    is_reasoning: bool
    text: str
    start: int


@dataclass(frozen=True)
class Split:
    """A whole text taken apart; `is_open` tells that the reasoning never ended, and so there is no answer."""

    reasoning: str
    answer: str
    is_open: bool


class ReasoningSplitter:
    """Takes a reply apart as it comes; however it is cut into pieces, the same comes out.

    Neither marks nor white space around them belong to either part. A piece that could be part of a mark is held back.

    Args:
        opening: the mark that the prompt ended with, see `opening_of`; empty if the model opens by itself.
    """

    def __init__(self, opening: str = "") -> None:
        self._state: _State = "opened" if opening else "start"
        self._opening = opening
        self._closing: tuple[str, ...] = (PAIRS[opening],) if opening else ()
        self._held = ""
        self._at = 0  # offset of the held text
        self._at_beginning = True
        self._begins_segment = False

    @property
    def is_reasoning(self) -> bool:
        """Whether reasoning has begun and not ended."""
        return self._state in ("opened", "reasoning", "header", "between")

    @property
    def is_undecided(self) -> bool:
        """Whether it is not known yet what the text begins with."""
        return self._state == "start"

    @property
    def num_chars(self) -> int:
        """Characters taken in, marks and all."""
        return self._at + len(self._held)

    def push(self, text: str) -> list[Piece]:
        """Return what the text that came next settles."""
        self._held += text
        pieces: list[Piece] = []
        while self._step(pieces):
            pass
        return pieces

    def pending(self) -> list[Piece]:
        """Return what is held back, as it stands if nothing more comes."""
        if self._state in ("header", "between", "after") or not self._held:
            return []
        if self._state == "start":
            return [Piece(False, self._held, self._at)]
        text = self._held[: _without_space(self._held, len(self._held))]
        return [Piece(True, text, self._at)] if text else []

    def _step(self, pieces: list[Piece]) -> bool:
        """Take one step through the held text; False if it needs more."""
        match self._state:
            case "start":
                return self._open((*PAIRS, *PAIRS.values(), CHANNEL, TURN), "answer")
            case "opened":
                return self._open((self._opening,), "reasoning")
            case "reasoning":
                return self._reason(pieces)
            case "header":
                return self._enter_channel()
            case "between":
                return self._next_channel()
            case "after":
                self._drop(len(self._held) - len(self._held.lstrip()))
                self._state = "answer" if self._held else "after"
                return bool(self._held)
            case "answer":
                return self._emit(pieces, False, self._held)

    def _open(self, marks: Sequence[str], otherwise: _State) -> bool:
        """Look for an opening mark at the very start."""
        begun = self._held.lstrip()
        if len(self._held) - len(begun) > _MAX_SPACE:
            self._state = otherwise
            return True
        body, may_be_addressed = begun, otherwise == "answer"
        if may_be_addressed and (addressed := _RECIPIENT.match(begun)) is not None:
            marks, body = (CHANNEL,), begun[addressed.end() :]
        mark = next((mark for mark in marks if body.startswith(mark)), None)
        if mark is not None:
            self._drop(len(self._held) - len(body) + len(mark))
            self._enter(mark)
            return True
        if any(mark.startswith(body) for mark in marks) or (may_be_addressed and "to=".startswith(begun)):
            return False
        self._state = otherwise
        return True

    def _enter(self, mark: str) -> None:
        """Take up what a mark at the start begins; one that closes leaves an empty pair, which shows nothing."""
        if mark in (CHANNEL, TURN):
            self._state, self._closing = "header" if mark == CHANNEL else "between", _CHANNEL_MARKS
        elif mark in PAIRS:
            self._state, self._closing = "reasoning", (PAIRS[mark],)
        else:
            self._state = "after"

    def _reason(self, pieces: list[Piece]) -> bool:
        if self._at_beginning:
            self._drop(len(self._held) - len(self._held.lstrip()))
            self._at_beginning = not self._held
        found = [(at, mark) for mark in self._closing if (at := self._held.find(mark)) >= 0]
        if not found:
            self._emit(pieces, True, self._held[: self._num_sure()])
            return False
        at, mark = min(found)
        self._emit(pieces, True, self._held[: _without_space(self._held, at)])
        self._drop(self._held.find(mark) + len(mark))
        self._state = "after" if mark not in _CHANNEL_MARKS else "header" if mark == CHANNEL else "between"
        return True

    def _num_sure(self) -> int:
        """Return how many of the held characters can neither be part of a mark nor white space before one."""
        longest = max(map(len, self._closing)) - 1
        for start in range(max(0, len(self._held) - longest), len(self._held)):
            if any(mark.startswith(self._held[start:]) for mark in self._closing):
                return _without_space(self._held, start)
        return _without_space(self._held, len(self._held))

    def _enter_channel(self) -> bool:
        header, mark, _ = self._held.partition(BODY)
        if not mark:
            return False
        self._drop(len(header) + len(mark))
        name = _CHANNEL_NAME.match(header)
        is_final = name is not None and name[1] == FINAL_CHANNEL
        self._state = "after" if is_final else "reasoning"
        self._begins_segment = not self._at_beginning
        self._at_beginning = True
        return True

    def _next_channel(self) -> bool:
        at, body_at = self._held.find(CHANNEL), self._held.find(BODY)
        if body_at >= 0 and not 0 <= at < body_at:  # a turn without a channel is what is said
            self._drop(body_at + len(BODY))
            self._state = "after"
            return True
        if at < 0:
            return False
        self._drop(at + len(CHANNEL))
        self._state = "header"
        return True

    def _emit(self, pieces: list[Piece], is_reasoning: bool, text: str) -> bool:
        """Settle text at the start of what is held; False: there is nothing more to do with the rest."""
        if not text:
            return False
        if is_reasoning and self._begins_segment:
            pieces.append(Piece(True, _SEGMENT_BREAK, self._at))
        pieces.append(Piece(is_reasoning, text, self._at))
        self._begins_segment = False
        self._drop(len(text))
        return False

    def _drop(self, num_chars: int) -> None:
        self._held = self._held[num_chars:]
        self._at += num_chars


def opening_of(prompt: str) -> str:
    """Return the mark that a prompt ends with, which the reply then has no opening of its own for; empty for none."""
    end = prompt.rstrip()
    return next((mark for mark in PAIRS if end.endswith(mark)), "")


def split(text: str, opening: str = "") -> Split:
    """Take a whole reply apart."""
    splitter = ReasoningSplitter(opening)
    pieces = [*splitter.push(text), *splitter.pending()]
    return Split(
        reasoning="".join(piece.text for piece in pieces if piece.is_reasoning),
        answer="".join(piece.text for piece in pieces if not piece.is_reasoning),
        is_open=splitter.is_reasoning,
    )


def _without_space(text: str, end: int) -> int:
    """Return where the white space before `end` begins, at most `_MAX_SPACE` of it."""
    low = max(0, end - _MAX_SPACE)
    return low + len(text[low:end].rstrip())
