"""Running states of recurrent and hybrid models, kept where turns end, so that a text can be taken up there again.

Such a layer holds one state and no past: nothing can be taken out of it, and without a copy an edited message, a new
variant or a template that drops an earlier reply's thoughts would read the whole text again. The keys and values of a
hybrid's other layers stay where they are and are simply cut.
"""

from __future__ import annotations

MAX_STATES = 64
MAX_BYTES = 2**30
"""Some hybrids have states of 50 MB and more; the newest few are kept whatever their size."""

INTERVAL_TOKENS = 512
"""A state is kept at least this often while a prompt is read, for whoever edits the middle of a long one."""

GENERATION_PROMPT_TOKENS = 16
"""What a template opens a reply with, and may write otherwise once the reply is history, is shorter than this."""

_NEWEST_KEPT = 3


class RunningStates:
    """Copies of one sequence's running state, by the tokens fed until then."""

    def __init__(self) -> None:
        self._states: list[tuple[int, bytes]] = []

    @property
    def num_bytes(self) -> int:
        return sum(len(state) for _, state in self._states)

    @property
    def places(self) -> list[int]:
        """After how many tokens there is a state, in order."""
        return [num_fed for num_fed, _ in self._states]

    def keep(self, num_fed: int, state: bytes) -> None:
        """Keep the state after so many tokens, of which there are none of more; drop others where they lie close."""
        self.forget_after(num_fed - 1)
        self._states.append((num_fed, state))
        while len(self._states) > _NEWEST_KEPT and (len(self._states) > MAX_STATES or self.num_bytes > MAX_BYTES):
            places = [0, *self.places]
            gaps = [after - before for before, after in zip(places, places[2:], strict=False)]
            candidates = gaps[: len(self._states) - _NEWEST_KEPT]
            del self._states[candidates.index(min(candidates))]

    def latest(self) -> tuple[int, bytes] | None:
        """Return the newest state and after how many tokens it was."""
        return self._states[-1] if self._states else None

    def forget_after(self, num_fed: int) -> None:
        """Drop the states of more tokens than that: the text goes another way from there."""
        while self._states and self._states[-1][0] > num_fed:
            self._states.pop()


def ends_of_batches(num_tokens: int, last_message_start: int = 0) -> tuple[int, ...]:
    """Return after how many tokens of a prompt a batch ends so that its state can be kept, its own end included.

    The last token is read by itself: a new variant needs its logits again, and nothing else. Example: 100 tokens of
    which the last message begins behind the first 60 give (60, 84, 99, 100).
    """
    ends = {last_message_start, num_tokens - GENERATION_PROMPT_TOKENS, num_tokens - 1, num_tokens}
    return tuple(sorted(end for end in ends if 0 < end <= num_tokens))
