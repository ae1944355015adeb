"""Every passage of a text that grows at its end, in one structure: a suffix automaton over token ids.

Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text", built token by token; a cut starts
another text in the same automaton, so passages that recur cost nothing the second time.

A push costs a few dictionary steps, amortised over the text; looking at the end costs as many as there are answers. It
takes at most two states a token, in practice some 1.5, and some 100 bytes a token: most states have one way on, kept in
arrays, the others a dictionary.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

_ROOT, _NONE = 0, -1


class SuffixAutomaton:
    """Passages of token ids, each state those that end at the same places.

    Args:
        reach: longest passage of interest at the end, in tokens; None is no limit. What a push and a look cost is
            bounded by it even where the text goes round in circles.

    Attributes:
        num_tokens: taken in, cuts included.
    """

    def __init__(self, reach: int | None) -> None:
        self.num_tokens = 0
        self._reach = reach
        self._lengths = array("i")  # of the longest passage of each state
        self._links = array("i")  # state of the longest shorter passage at the end that also ends elsewhere
        self._ends = array("q")  # tokens taken in when a passage of the state was last there; not beyond the reach
        self._tokens = array("i")  # the first way on from each state ...
        self._targets = array("i")  # ... and where it leads
        self._more: dict[int, dict[int, int]] = {}  # its other ways on
        self._last = self._end = self._new_state(0)
        self._end_length = 0

    def cut(self) -> None:
        """Take in a token that no passage holds."""
        self.num_tokens += 1
        self._last = self._end = _ROOT
        self._end_length = 0

    def push(self, token: int) -> None:
        """Take in one more token."""
        self.num_tokens += 1
        known = self._next(self._last, token)
        self._last = self._extend(token) if known == _NONE else self._exact(self._last, token, known)
        self._move_end(token)

    def followers(self, shortest: int, since: int = 0) -> tuple[Ids, Ids]:
        """Return the tokens that followed passages which the text ends with, and the lengths of these passages.

        A token comes once for each such passage. Going through many of them is left to C.

        Args:
            shortest: passages below so many tokens are left out; 1 or more.
            since: tokens taken in before what counts; of a passage that was last there across it, what is behind it.
        """
        tokens, ends, targets = array("q"), array("q"), self._targets
        lengths, counts = array("q"), array("q")
        state, length = self._end, self._end_length
        while state != _ROOT and length >= shortest:
            num_before = len(tokens)
            if (token := self._tokens[state]) != _NONE:
                tokens.append(token)
                ends.append(self._ends[targets[state]])
                if (more := self._more.get(state)) is not None:
                    tokens.extend(more)
                    ends.extend(map(self._ends.__getitem__, more.values()))
            lengths.append(length)
            counts.append(len(tokens) - num_before)
            state = self._links[state]
            length = self._lengths[state]
        found = np.repeat(_as_ids(lengths), _as_ids(counts))
        if since:
            found = np.minimum(found, _as_ids(ends) - 1 - since)
        counted = found >= shortest
        return _as_ids(tokens)[counted], found[counted]

    def _extend(self, token: int) -> int:
        """Add the state of the whole text with a token that never followed it."""
        state, place = self._new_state(self._lengths[self._last] + 1), self._last
        while place != _NONE and (known := self._next(place, token)) == _NONE:
            self._set_next(place, token, state)
            place = self._links[place]
        self._links[state] = _ROOT if place == _NONE else self._exact(place, token, known)
        return state

    def _exact(self, place: int, token: int, known: int) -> int:
        """Return the state of a passage with a token, parted from longer ones that ended at the same places so far."""
        length = self._lengths[place] + 1
        if self._lengths[known] == length:
            return known
        parted = self._new_state(length)
        self._links[parted], self._ends[parted] = self._links[known], self._ends[known]
        self._tokens[parted], self._targets[parted] = self._tokens[known], self._targets[known]
        if known in self._more:
            self._more[parted] = self._more[known].copy()
        self._links[known] = parted
        while place != _NONE and self._next(place, token) == known:
            self._set_next(place, token, parted)
            place = self._links[place]
        if self._end == known and self._end_length <= length:
            self._end = parted
        return parted

    def _move_end(self, token: int) -> None:
        """Take the passage that the text ends with one token on, and note where it and all shorter ones are now."""
        self._end, self._end_length = self._next(self._end, token), self._end_length + 1
        if self._reach is not None and self._end_length > self._reach:
            self._end_length = self._reach
        links, ends, num_tokens = self._links, self._ends, self.num_tokens
        while self._lengths[links[self._end]] >= self._end_length:
            self._end = links[self._end]
        state = self._end
        while state != _ROOT:
            ends[state] = num_tokens
            state = links[state]

    def _new_state(self, length: int) -> int:
        self._lengths.append(length)
        self._ends.append(0)
        for each in (self._links, self._tokens, self._targets):
            each.append(_NONE)
        return len(self._lengths) - 1

    def _next(self, state: int, token: int) -> int:
        if self._tokens[state] == token:
            return self._targets[state]
        more = self._more.get(state)
        return _NONE if more is None else more.get(token, _NONE)

    def _set_next(self, state: int, token: int, target: int) -> None:
        if self._tokens[state] in (_NONE, token):
            self._tokens[state], self._targets[state] = token, target
        else:
            self._more.setdefault(state, {})[token] = target


def _as_ids(numbers: array[int]) -> Ids:
    return np.frombuffer(numbers, dtype=np.int64)
