"""Stop strings over streamed text: nothing from the earliest match onward ever gets out, and nothing else is lost.

Knows nothing of tokens or models; every backend puts its decoded text through one `StopMatcher` a reply.
"""

from __future__ import annotations

from collections.abc import Iterable


class StopMatcher:
    """Cuts streamed text at the earliest stop string, however the text is split into pieces.

    Text that could still become a stop string is held back: less than the longest stop string. Where stop strings
    overlap, the one that starts first wins, so a match is only settled once no earlier one can complete. With stops
    "bc" and "abcd", "abc" is held: "d" would move the cut from 1 to 0.

    Args:
        stops: strings that end the text. Empty ones are ignored, since they would end every text at once.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(dict.fromkeys(stop for stop in stops if stop))
        self._held = ""
        self._matched = False

    @property
    def matched(self) -> bool:
        """Whether a stop string was found; the text has then ended and `push` returns nothing more."""
        return self._matched

    @property
    def holds_text(self) -> bool:
        """Whether text is held back."""
        return bool(self._held)

    def push(self, text: str) -> str:
        """Take the next piece; return what is now known to lie before any stop string."""
        if self._matched:
            return ""
        self._held += text
        match_start = self._match_start()
        candidate_start = self._candidate_start()
        self._matched = match_start < len(self._held) and match_start <= candidate_start
        return self._release(min(match_start, candidate_start))

    def flush(self) -> str:
        """Return what was held back: the text has ended, so no candidate can complete any more."""
        if self._matched:
            return ""
        match_start = self._match_start()
        self._matched = match_start < len(self._held)
        return self._release(match_start)

    def _release(self, end: int) -> str:
        released, self._held = self._held[:end], "" if self._matched else self._held[end:]
        return released

    def _match_start(self) -> int:
        """Return where the earliest whole stop string starts in the held text; its length if there is none."""
        starts = (self._held.find(stop) for stop in self._stops)
        return min((start for start in starts if start >= 0), default=len(self._held))

    def _candidate_start(self) -> int:
        """Return the earliest start from which the held text is the beginning of a stop string; its length if none."""
        return min((self._prefix_start(stop) for stop in self._stops), default=len(self._held))

    def _prefix_start(self, stop: str) -> int:
        start = self._held.find(stop[0], max(0, len(self._held) - len(stop) + 1))
        while start >= 0 and not stop.startswith(self._held[start:]):
            start = self._held.find(stop[0], start + 1)
        return start if start >= 0 else len(self._held)
