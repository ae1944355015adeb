"""Several replies to one prompt, a token of each at a time: one pass over the weights serves all of them.

The prompt is read once, elsewhere, and copied into a row a reply; from there on every row goes its own way. A row that
has ended is fed on with what does not matter, since rows never see each other, until the last one has ended.

Shape letters: B rows, T tokens of a call, V vocabulary.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from backends.events import Event, Finished, FinishReason, PrefillProgress, TextChunk
from backends.ring.reply import Reply
from models.ring_cache import CacheSnapshot, KVCache
from models.sampling import INVALID_TOKEN
from models.text_model import TextModel
from models.token_step import TokenStep

NOT_A_NUMBER = "The model's output is not a number."
NOT_A_NUMBER_HINT = "Its file may be damaged; if not, choose another precision."
_ANY_TOKEN = 0

RowCancelled = Callable[[int], bool]
Keep = Callable[["array[int]", CacheSnapshot], None]


class Drafts:
    """Replies to one prompt, one in each row of a cache.

    Args:
        model: what writes.
        cache: all rows have read the prompt, as far as `prompt_read`.
        step: of that cache; it has begun with the prompt.
        replies: one a row.
        prompt_read: tokens fed to every row.
        num_prompt_tokens: of the whole prompt.
        end_ids: tokens that end a text.
        chunk_tokens: fed at a time where everything must be read again.
        keep: takes what the cache holds of a reply that has ended, with the tokens it holds.
    """

    def __init__(
        self,
        model: TextModel,
        cache: KVCache,
        step: TokenStep,
        replies: Sequence[Reply],
        prompt_read: Sequence[int],
        num_prompt_tokens: int,
        end_ids: Sequence[int],
        chunk_tokens: int,
        keep: Keep,
    ) -> None:
        self.cache = cache
        self._model = model
        self._step = step
        self._replies = replies
        self._fed = [array("i", prompt_read) for _ in replies]
        self._num_prompt_tokens = num_prompt_tokens
        self._end_ids = end_ids
        self._chunk_tokens = max(1, chunk_tokens // len(replies))
        self._keep = keep
        self._live = list(range(len(replies)))

    @property
    def num_rows(self) -> int:
        """B, ended ones included."""
        return len(self._replies)

    def first_tokens(self, last_of_prompt: int, logits_1V: Tensor | None) -> list[int]:
        """Draw the first token of every row, from the prompt's logits if they are known."""
        if logits_1V is None:
            return self._next_tokens([last_of_prompt] * self.num_rows)
        self._constrain()
        return self._step.draw_from(logits_1V, self._numbers())

    def write(self, tokens: list[int], cancelled: RowCancelled) -> Iterator[tuple[int, Event]]:
        """Yield what becomes of each row, from its first token to its `Finished`."""
        while True:
            for row in list(self._live):
                yield from self._take(row, tokens[row], cancelled)
            if not self._live:
                return
            if self._model.must_start_over(self.cache, 1):
                yield from self._read_again(cancelled)
                if not self._live:
                    return
            tokens = self._next_tokens([tokens[row] if row in self._live else _ANY_TOKEN for row in self._rows])

    @property
    def _rows(self) -> range:
        return range(self.num_rows)

    def _take(self, row: int, token: int, cancelled: RowCancelled) -> Iterator[tuple[int, Event]]:
        """Take in what was drawn for a row, and end the row if it ends here."""
        reply, reason, message = self._replies[row], self._replies[row].end_reason, ""
        if reason is None and token == INVALID_TOKEN:
            reason, message = "error", f"{NOT_A_NUMBER} {NOT_A_NUMBER_HINT}"
        elif reason is None and token in self._end_ids:
            reason = "stop"
        elif reason is None:
            yield row, TextChunk(reply.push(token), (token,), reply.is_settled)
            reason = reply.end_reason or ("cancelled" if cancelled(row) else None)
        if reason is not None:
            yield from self._end(row, reason, message)

    def _end(self, row: int, reason: FinishReason, message: str = "") -> Iterator[tuple[int, Event]]:
        self._live.remove(row)
        reply = self._replies[row]
        if rest := reply.flush():
            yield row, TextChunk(rest, ())
        if reason != "error" and self.cache.position == len(self._fed[row]):  # not in the middle of reading again
            self._keep(self._fed[row][:], self.cache.snapshot("cpu", row))
        reason = reply.end_reason or reason
        yield row, Finished(reason, reply.seed, self._num_prompt_tokens, reply.num_tokens, message)

    def _next_tokens(self, tokens: Sequence[int]) -> list[int]:
        self._constrain()
        drawn = self._step.feed_rows(tokens, self._numbers())
        for fed, token in zip(self._fed, tokens, strict=True):
            fed.append(token)
        return drawn

    def _numbers(self) -> list[float]:
        return [reply.number for reply in self._replies]

    def _constrain(self) -> None:
        for row in self._live:
            allowed_V = self._replies[row].allowed
            if allowed_V is not None:
                self._step.allow(torch.from_numpy(allowed_V), row)

    def _read_again(self, cancelled: RowCancelled) -> Iterator[tuple[int, Event]]:
        """Feed all that was fed once more, since the next token changes how positions are told (longrope)."""
        num_tokens = len(self._fed[0])
        self.cache.reset(planned_length=num_tokens + 1)
        for start in range(0, num_tokens, self._chunk_tokens):
            if all(map(cancelled, self._live)):
                for row in list(self._live):
                    yield from self._end(row, "cancelled")
                return
            end = min(start + self._chunk_tokens, num_tokens)
            self._feed([fed[start:end].tolist() for fed in self._fed])
            yield from ((row, PrefillProgress(end, num_tokens)) for row in self._live)

    @torch.inference_mode()
    def _feed(self, tokens: list[list[int]]) -> None:
        self._model(torch.tensor(tokens, device=self.cache.device), self.cache, logits="none")
