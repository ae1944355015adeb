"""News worked out once for all tabs that are to be told the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

Value = TypeVar("Value")


class SharedNews:
    """Values of one look at what is new, by what they are about; `next_look` begins another one.

    Two threads that ask for the same at once may both work it out, and get the same.
    """

    def __init__(self) -> None:
        self._of_this_look: dict[Hashable, object] = {}
        self._last: dict[Hashable, object] = {}

    def next_look(self) -> None:
        """Forget what may have changed by now."""
        self._of_this_look = {}

    def once(self, key: Hashable, work: Callable[[], Value]) -> Value:
        """Return what `work` gives, called once a look for each key."""
        look = self._of_this_look
        if key not in look:
            look[key] = work()
        return cast("Value", look[key])

    def lasting(self, key: Hashable, work: Callable[[], Value]) -> Value:
        """Return as `once` does, and the very same object as in earlier looks while it is equal.

        A list of thousands that is compared with itself by every tab costs next to nothing then.
        """

        def same_or_new() -> Value:
            value = work()
            last = self._last.get(key)
            self._last[key] = last if last == value else value
            return cast("Value", self._last[key])

        return self.once(key, same_or_new)
