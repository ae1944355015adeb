"""Control tokens spelled in what people type stay text: only what a chat template itself writes opens or closes a turn.

While the template renders, the first character of each such spelling is replaced by a stand-in, one for one, so that
templates trim, split and measure what they always do. Before tokenising, the text is cut behind each stand-in: no
tokenizer finds `<|im_end|>` in `<` and `|im_end|>`. `models.prompt` does both.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from backends.errors import BadRequestError
from backends.requests import Message
from models.chat_template import ChatTemplate
from models.end_tokens import END_TOKENS
from models.reasoning import BODY, CHANNEL, CHANNEL_STARTS, END, GEMMA_CHANNEL, PAIRS, TURN, split

_FIRST_STAND_IN, _LAST_STAND_IN = 0xF0000, 0xFFFFD
"""Private-use characters of plane 15, which no text in the wild holds."""

_THINKING_MARKS = frozenset([*PAIRS, *PAIRS.values(), GEMMA_CHANNEL])
_CHANNEL_MARKS = frozenset([CHANNEL, BODY, TURN, END])
_MARKUP = re.compile(r"<.*\w.*>|\[.*\w.*\]", re.DOTALL)
_PROBE = (Message("user", "0"), Message("assistant", "1"), Message("user", "2"))


class ControlTexts:
    """Spellings that a tokenizer reads as control tokens.

    Args:
        texts: the spellings. Those of one character are left out, since nothing is left of them to cut.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = frozenset(text for text in texts if len(text) > 1)
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for text in self._texts:
            lengths[text[0]].add(len(text))
        self._lengths: Mapping[str, Sequence[int]] = {first: sorted(each) for first, each in lengths.items()}
        self._first = re.compile(f"[{re.escape(''.join(lengths))}]") if lengths else None

    def __contains__(self, text: object) -> bool:
        return text in self._texts

    @property
    def first_characters(self) -> frozenset[str]:
        return frozenset(self._lengths)

    def places(self, text: str, kept: frozenset[str] = frozenset()) -> list[int]:
        """Return where spellings begin, those that overlap included and those in `kept` left out."""
        if self._first is None:
            return []
        return [match.start() for match in self._first.finditer(text) if self._begins(text, match.start(), kept)]

    def at_start(self, text: str) -> str | None:
        """Return the longest spelling that a text begins with."""
        spans = (text[:length] for length in reversed(self._lengths.get(text[:1], ())))
        return next((span for span in spans if span in self._texts), None)

    def _begins(self, text: str, start: int, kept: frozenset[str]) -> bool:
        spans = (text[start : start + length] for length in self._lengths[text[start]])
        return any(span in self._texts and span not in kept for span in spans)


class Disguise:
    """Stand-ins for the spellings in one chat.

    Args:
        control_texts: what to look for.
        texts: all text there is, so that the stand-ins occur in none of it.
    """

    def __init__(self, control_texts: ControlTexts, texts: Iterable[str]) -> None:
        self._control_texts = control_texts
        taken = {letter for text in texts for letter in set(text)}
        free = (chr(code) for code in range(_FIRST_STAND_IN, _LAST_STAND_IN + 1) if chr(code) not in taken)
        self._stand_ins = dict(zip(sorted(control_texts.first_characters), free, strict=False))
        self._originals = str.maketrans({stand_in: first for first, stand_in in self._stand_ins.items()})
        stand_ins = "".join(self._stand_ins.values())
        self._part = re.compile(f"[^{stand_ins}]*.", re.DOTALL) if stand_ins else None

    def put_on(self, message: Message) -> Message:
        """Return a message whose text, and what a person wrote in a reply, spells no control token."""
        hide = self._hide_in_reply if message.role == "assistant" else self._hide
        pieces = message.pieces
        if pieces is not None:
            pieces = tuple(hide(piece) if isinstance(piece, str) else piece for piece in pieces)
        return Message(message.role, hide(message.text), message.token_ids, pieces)

    def parts(self, text: str) -> list[str]:
        """Return a text as it was, in the parts that are to be tokenised one by one."""
        if self._part is None or not text:
            return [text]
        return [part.translate(self._originals) for part in self._part.findall(text)]

    def _hide(self, text: str, kept: frozenset[str] = frozenset()) -> str:
        places = self._control_texts.places(text, kept)
        if not places:
            return text
        letters = list(text)
        for place in places:
            letters[place] = self._stand_ins[letters[place]]
        return "".join(letters)

    def _hide_in_reply(self, text: str) -> str:
        """Leave the marks of reasoning, which templates look for; in the answer behind channels they are text."""
        if not text.lstrip().startswith(CHANNEL_STARTS):
            return self._hide(text, _THINKING_MARKS)
        answer_start = len(text) - len(split(text).answer)
        return self._hide(text[:answer_start], _CHANNEL_MARKS) + self._hide(text[answer_start:])


def template_markup(template: ChatTemplate, user_defined: Iterable[str]) -> list[str]:
    """Return which whole words of a vocabulary open or close turns: those a template writes, and all of `END_TOKENS`.

    Some vocabularies list `<start_of_turn>` or `<｜User｜>` as such; HTML's `</s>` is an end of text for llama.cpp.
    """
    try:
        written = template.render(_PROBE)
    except BadRequestError:
        written = ""
    candidates = (text for text in user_defined if text not in _THINKING_MARKS and _MARKUP.fullmatch(text))
    return [text for text in candidates if text in written or text in END_TOKENS]
