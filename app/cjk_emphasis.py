"""Emphasis beside Chinese, Japanese and Korean punctuation, by the CJK-friendly amendments to CommonMark.

CommonMark asks for a space or punctuation outside of `**` where there is punctuation inside. Scripts without spaces
have none to give, so `**「A」**なので` stayed as it was typed. The amended rule is that of markdown-it-cjk-friendly:
https://github.com/tats-u/markdown-cjk-friendly/blob/main/specification.md (section 6.2; characters in ranges.md).
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.common.utils import isPunctChar, isWhiteSpace
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token
from markdown_it.utils import EnvType

# wide, full-width and half-width characters that are no emoji, and all of Hangul
_CJK = re.compile(
    "[\u1100-\u11ff\u20a9\u2329\u232a\u2630-\u2637\u268a-\u268f\u2e80-\u303e\u3041-\ua4c6\ua960-\ua97c\uac00-\ud7fb"
    "\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6b\uff01-\uffdc\uffe0-\uffee\U00016fe0-\U0001b2fb\U0001d300-\U0001d376"
    "\U0001f200\U0001f202\U0001f210-\U0001f219\U0001f21b-\U0001f22e\U0001f230\U0001f231\U0001f237\U0001f23b"
    "\U0001f240-\U0001f248\U0001f260-\U0001f265\U00020000-\U0003fffd]"
)
_QUOTES_OF_ANY_WIDTH = "\u2018\u2019\u201c\u201d"
_FULL_WIDTH_SELECTOR = "\ufe01"


def is_cjk(character: str) -> bool:
    """Tell whether this is a character of Chinese, Japanese or Korean text, its punctuation included."""
    return _CJK.match(character) is not None


class CjkFriendlyInline(ParserInline):
    """The parser of text inside a block, with the amended rule for `*`, `_` and `~~`."""

    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        """Parse a piece of text into tokens, added to `tokens`."""
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


class _State(StateInline):
    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802 (the name is the library's)
        """Return whether a run of delimiters can open and close emphasis, and its length."""
        end = start
        while end < self.posMax and self.src[end] == self.src[start]:
            end += 1
        after = self.src[end] if end < self.posMax else " "
        before, selector = _character_before(self.src, start)
        is_space_before, is_space_after = isWhiteSpace(ord(before)), isWhiteSpace(ord(after))
        is_cjk_before = _is_cjk_sequence(before, selector)
        is_foreign_mark_before = isPunctChar(before) and not is_cjk_before
        is_foreign_mark_after = isPunctChar(after) and not is_cjk(after)
        opens = not is_space_after and (
            not is_foreign_mark_after or is_space_before or is_foreign_mark_before or is_cjk_before
        )
        closes = not is_space_before and (
            not is_foreign_mark_before or is_space_after or is_foreign_mark_after or is_cjk(after)
        )
        return Scanned(
            opens and (canSplitWord or not closes or isPunctChar(before)),
            closes and (canSplitWord or not opens or isPunctChar(after)),
            end - start,
        )


def _character_before(text: str, at: int) -> tuple[str, str]:
    """Return the character before a place, and the variation selector between them if there is one.

    A selector of the ideographic kind stands for the ideograph before it.
    """
    before = text[at - 1 : at] or " "
    if "\U000e0100" <= before <= "\U000e01ef" or not "\ufe00" <= before <= "\ufe0e":
        return before, ""
    return text[at - 2 : at - 1] or " ", before


def _is_cjk_sequence(character: str, selector: str) -> bool:
    is_ideographic_selector = "\U000e0100" <= character <= "\U000e01ef"
    is_full_width_quote = character in _QUOTES_OF_ANY_WIDTH and selector == _FULL_WIDTH_SELECTOR
    return is_cjk(character) or is_ideographic_selector or is_full_width_quote
