"""What readers of other programs' chats share: trees by id, reasoning before an answer, times, what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from app.archive import ArchivedChat, LeftOut
from models.reasoning import PAIRS

PROGRAMS = "text-generation-webui, Open WebUI, ChatGPT, SillyTavern, LM Studio and KoboldCpp"
"""Whose chats are read, besides those of Ringside."""

_MAX_TIMESTAMP = 1e21  # beyond nanoseconds; Python's whole numbers have no end


class LeftOutCount:
    """What a file holds and a chat here has no place for, counted by kind."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, one: str, several: str = "", count: int = 1) -> None:
        """Count things of a kind, named for one and for several ("picture", "pictures" unless given)."""
        if count:
            self._counts[one, several or f"{one}s"] += count

    def all(self) -> tuple[LeftOut, ...]:
        """Return each kind with its number."""
        return tuple(LeftOut(one, several, count) for (one, several), count in self._counts.items())


def left_out_words(chats: Sequence[ArchivedChat]) -> str:
    """Return what was left out of all these chats, "3 pictures, 1 comment"; empty if that is nothing."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in (left for chat in chats for left in chat.left_out):
        counts[each.one, each.several] += each.count
    return ", ".join(f"{count:,} {one if count == 1 else several}" for (one, several), count in counts.items())


def from_the_roots(parents: Mapping[str, str]) -> Iterator[str]:
    """Yield every id once, a parent before its children, siblings in their order; a circle is cut somewhere.

    Args:
        parents: of every id the one before it; what is no id here stands for none.
    """
    children: dict[str, list[str]] = {id_: [] for id_ in parents}
    roots: list[str] = []
    for id_, parent in parents.items():
        children.get(parent, roots).append(id_)
    known: set[str] = set()
    for first in (*roots, *parents):
        waiting = [first]
        while waiting:
            id_ = waiting.pop()
            if id_ not in known:
                known.add(id_)
                yield id_
                waiting.extend(reversed(children[id_]))


def reply_text(reasoning: str, answer: str) -> str:
    """Return a reply with its reasoning before the answer, between marks that do not occur in it."""
    reasoning = reasoning.strip()
    if not reasoning:
        return answer
    opens = next((opens for opens, closes in PAIRS.items() if closes not in reasoning), "<think>")
    return f"{opens}\n{reasoning}\n{PAIRS[opens]}\n\n{answer}"


def timestamp_s(value: object) -> float:
    """Return a time in seconds, given in seconds, milliseconds or finer; 0 if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < _MAX_TIMESTAMP:
        return 0.0
    while value > 1e11:
        value /= 1_000
    return float(value)


def text_of(value: object) -> str:
    """Return a value if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def dict_of(value: object) -> dict[str, object]:
    """Return a value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    """Return a value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []
