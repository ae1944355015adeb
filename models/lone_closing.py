"""Reasoning that nothing opened: some models, and templates that are not their own, leave out the opening mark.

Such a reply is told by its closing mark, long after its first words were shown. From then on it is read like one whose
prompt had opened the reasoning, see `models.reasoning.ReasoningSplitter`.
"""

from __future__ import annotations

from models.reasoning import CHANNEL, PAIRS, TURN

_FENCES = ("```", "~~~")
_SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？")
_LONGEST_LINE = 8_192
"""Characters of a line that are held; of a longer one the end alone can still hold a mark."""


class LoneClosing:
    """Looks for a closing mark in a text that comes in pieces, at the cost of reading it once.

    A mark counts where it begins or ends a line outside code or follows the end of a sentence at once, and where its
    opening was never written: a reply about these very marks has them inside a sentence, as code, or in pairs.
    """

    def __init__(self) -> None:
        self._line = ""
        self._begins_line = True  # whether the held text begins a line
        self._fence = ""
        self._is_over = False
        self._has_words = False
        self._written: set[str] = set()

    def push(self, text: str) -> str:
        """Take the text that came next; return the opening mark that is missing, or nothing."""
        if self._is_over:
            return ""
        *lines, rest = (self._line + text).split("\n")
        for line in lines:
            if opening := self._missing(line):
                return opening
            self._begins_line = True
        self._line = rest
        if len(rest) > _LONGEST_LINE:
            self._note_openings(rest)
            self._line, self._begins_line = rest[-_LONGEST_LINE // 2 :], False
        return ""

    def flush(self) -> str:
        """Return what the last line adds: the text has ended."""
        return "" if self._is_over else self._missing(self._line)

    def _missing(self, line: str) -> str:
        bare = line.strip()
        if not self._has_words and bare:
            self._has_words = True
            self._is_over = bare.startswith((*PAIRS, CHANNEL, TURN))
        if self._is_over or self._is_code(bare):
            return ""
        self._note_openings(line)
        for opening, closing in PAIRS.items():
            if opening not in self._written and "`" not in bare and self._stands_out(closing, bare):
                self._is_over = True
                return opening
        return ""

    def _stands_out(self, closing: str, bare: str) -> bool:
        before, found, after = bare.partition(closing)
        return bool(found) and (not after or (self._begins_line and not before) or before.endswith(_SENTENCE_ENDS))

    def _is_code(self, bare: str) -> bool:
        """Whether a line is part of a fence, its first and last line included."""
        if self._fence:
            if bare.startswith(self._fence) and not bare.strip(self._fence[0]):
                self._fence = ""
            return True
        self._fence = next((mark for mark in _FENCES if bare.startswith(mark)), "")
        return bool(self._fence)

    def _note_openings(self, text: str) -> None:
        self._written.update(opening for opening in PAIRS if opening in text)


def missing_opening(text: str) -> str:
    """Return the mark that a whole reply lacks at its start; empty where it lacks none."""
    if not any(closing in text for closing in PAIRS.values()):
        return ""
    looking = LoneClosing()
    return looking.push(text) or looking.flush()
