"""The sequence in a llama.cpp context: which tokens it was fed, how it makes room, and how far back it can be taken up.

Three numbers that are easily confused are kept apart: tokens ever fed, cells in use, and the position llama.cpp gives
the next token. They are equal until room is made for the first time.

Making room drops a block of the oldest cells behind the sinks and moves the rest down (StreamingLLM, Xiao et al. 2023,
section 3.2: positions counted inside the cache). For models with sliding layers `llama_memory_can_shift` denies that
this works with small sliding caches; in 0.3.36 it does, as each cache is shifted by itself, provided that what is
dropped lies outside every sliding window. Room is made only once the last cell is taken, so what a token sees depends
on how many came before it, not on how they were split into batches.

The last digits of the logits do depend on that split, enough to turn a near tie. So the cache is taken up again at the
start of an earlier batch where that costs little: the same request then gives the same text, whatever ran in between.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from backends.llamacpp.plan import ContextPlan
from backends.llamacpp.running_states import INTERVAL_TOKENS, RunningStates
from backends.llamacpp.saved_state import Place
from backends.shared_prefix import common_prefix

_WORTH_KEEPING_TOKENS = 256
"""Where the last batch began further back than this, tokens generated since are kept rather than run again."""


class Cells(Protocol):
    """What a token sequence needs of a `Context`; the methods are described there."""

    @property
    def has_full_layers(self) -> bool: ...
    def decode(self, tokens: Sequence[int], position: int, want_logits: bool) -> None: ...
    def clear(self) -> None: ...
    def remove(self, start: int, end: int = -1) -> None: ...
    def move(self, start: int, distance: int) -> None: ...
    def oldest_position(self) -> int: ...
    @property
    def has_running_state(self) -> bool: ...
    def running_state(self) -> bytes: ...
    def set_running_state(self, state: bytes) -> bool: ...


class TokenSequence:
    """Tokens fed to a context, oldest first, of which the cache holds the sinks and the newest.

    Args:
        cells: an empty context.
        plan: its size.
        sliding_window: as llama.cpp runs it; 0 if no layer slides.

    Attributes:
        sinks: first tokens that are never dropped. Changing it matters from the next time room is made.
    """

    def __init__(self, cells: Cells, plan: ContextPlan, sliding_window: int) -> None:
        self.sinks = 0
        self._cells = cells
        self._plan = plan
        self._sliding_window = sliding_window
        self.clear()

    def clear(self) -> None:
        """Start over with an empty cache."""
        self._fed = array("i")  # four bytes a token: a list of ints would show in the process's memory
        self._num_cells = 0
        self._next_position = 0
        self._fed_at_last_drop = 0
        self._sinks_at_last_drop = 0
        self._batch_starts: list[int] = []
        self._states = RunningStates()
        self._cells.clear()

    @property
    def num_fed(self) -> int:
        """Tokens ever fed."""
        return len(self._fed)

    @property
    def num_cells(self) -> int:
        """Tokens the cache holds, sinks included."""
        return self._num_cells

    @property
    def room(self) -> int:
        """Tokens that fit before something must be dropped."""
        return self._plan.num_cells - self._num_cells

    @property
    def fed(self) -> array[int]:
        """Tokens ever fed, in order."""
        return self._fed

    def place(self) -> Place:
        """Return where the sequence stands."""
        return Place(
            self._num_cells,
            self._next_position,
            self._fed_at_last_drop,
            self._sinks_at_last_drop,
            tuple(self._batch_starts),
        )

    def stand_at(self, fed: array[int], place: Place) -> None:
        """Take the cells for what another sequence fed, which stood there."""
        self._fed = fed
        self._num_cells = place.num_cells
        self._next_position = place.next_position
        self._fed_at_last_drop = place.fed_at_last_drop
        self._sinks_at_last_drop = place.sinks_at_last_drop
        self._batch_starts = list(place.batch_starts)

    def feed(self, tokens: Sequence[int], want_logits: bool) -> None:
        """Run tokens: at most `room` of them, or at most one when the context is full.

        Raises:
            RingsideError: llama.cpp failed; the sequence is empty then.
        """
        self.make_room()
        try:
            self._cells.decode(tokens, self._next_position, want_logits)
        except BaseException:
            self.clear()
            raise
        if len(tokens) > 1:
            self._batch_starts.append(len(self._fed))
        self._fed.extend(tokens)
        self._num_cells += len(tokens)
        self._next_position += len(tokens)

    def take_up(self, prompt: Sequence[int]) -> int:
        """Keep what of the cache serves this prompt, drop the rest; return how many of its tokens need no feeding.

        At least one token is left to feed, since its logits are needed.
        """
        num_shared = min(common_prefix(self._fed, array("i", prompt)), len(prompt) - 1)
        if self._cells.has_running_state:
            return self._take_up_state(num_shared)
        num_kept = self._restart_point(num_shared)
        if not self._can_rewind_to(num_kept):
            self.clear()
            return 0
        self._cut(num_kept)
        return num_kept

    def keep_state(self, turn_ends: bool) -> None:
        """Keep the running state, where there is one, for prompts that share all tokens fed so far.

        Args:
            turn_ends: if not, it is kept only where none was for a long while.
        """
        latest = self._states.latest()
        is_due = len(self._fed) - (latest[0] if latest else 0) >= INTERVAL_TOKENS
        if self._cells.has_running_state and (turn_ends or is_due):
            self._states.keep(len(self._fed), self._cells.running_state())

    def _take_up_state(self, num_shared: int) -> int:
        """Go back to the newest running state before the prompts part; cells of other layers are cut there."""
        if num_shared and num_shared == len(self._fed):
            self.keep_state(turn_ends=True)
            return num_shared
        self._states.forget_after(num_shared)
        latest = self._states.latest()
        if latest is None or not self._cells.set_running_state(latest[1]):
            self.clear()
            return 0
        num_kept = latest[0]
        self._cut(num_kept)
        return num_kept

    def _cut(self, num_kept: int) -> None:
        """Drop all tokens but the first."""
        num_dropped = len(self._fed) - num_kept
        if num_dropped:
            self._cells.remove(self._next_position - num_dropped)
            self._num_cells -= num_dropped
            self._next_position -= num_dropped
            del self._fed[num_kept:]
            self._batch_starts = [start for start in self._batch_starts if start < num_kept]

    def _restart_point(self, num_shared: int) -> int:
        """Return how many of the tokens shared with a prompt to keep; see the module on batches."""
        if num_shared == len(self._fed):
            return num_shared
        batch_start = max((start for start in self._batch_starts if start <= num_shared), default=0)
        return batch_start if num_shared - batch_start <= _WORTH_KEEPING_TOKENS else num_shared

    def _can_rewind_to(self, num_tokens: int) -> bool:
        """Say whether the cache would then be what feeding only that many tokens gives.

        llama.cpp removes cells of a sliding cache without a word even if the window before them is gone, and the text
        that follows is silently wrong; hence the check of the oldest position (as in llama-server).
        """
        if num_tokens <= 0 or num_tokens < self._fed_at_last_drop:
            return False
        if self._fed_at_last_drop and self._sinks_at_last_drop != self.sinks:
            return False
        num_dropped = len(self._fed) - num_tokens
        position = self._next_position - num_dropped
        return num_dropped == 0 or 0 <= self._cells.oldest_position() <= max(0, position - self._sliding_window)

    def make_room(self) -> None:
        """Drop a block of the oldest tokens behind the sinks if the context is full; their place is free at once."""
        if self.room:
            return
        discard = self._plan.discard_tokens(self.sinks)
        if self._cells.has_full_layers:
            self._cells.remove(self.sinks, self.sinks + discard)
            self._cells.move(self.sinks + discard, -discard)
            self._next_position -= discard
        else:  # every layer slides and forgets by itself; moving an empty cache aborts the process, so only drop
            oldest = self._next_position - self._num_cells
            self._cells.remove(oldest, oldest + discard)
        self._batch_starts.clear()  # no way back behind this point
        self._num_cells -= discard
        self._fed_at_last_drop = len(self._fed)
        self._sinks_at_last_drop = self.sinks
