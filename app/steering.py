"""Notes that steer a long reply on its way: given to the model between two of its tokens, never shown as its text.

A reply is stopped at a good place, the note goes into the prompt behind what was written, and the reply goes on in the
same message. With a cache that stands where the reply stopped, that costs reading the note and nothing else.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from backends.contract import Backend, Cancelled
from backends.events import Event, Finished, PrefillProgress, TextChunk
from backends.requests import GenerationRequest, Message

_SENTENCE_ENDS = ("\n", " ", ".", "!", "?", "。", "！", "？")


def note_for_model(note: str) -> str:
    """Return a note as it stands in the prompt: a bracketed line of its own, as authors leave them in drafts."""
    return f"\n[Author's note: {note}]\n"


@dataclass(frozen=True)
class Steering:
    """Which notes to give, and when.

    Attributes:
        notes: one is given again and again; several are an outline: each is given once, in turn.
        every_tokens: drawn tokens between two notes, at least 1.
        num_given: notes this reply has already.
        num_tokens: drawn since the last of them.
    """

    notes: tuple[str, ...]
    every_tokens: int
    num_given: int = 0
    num_tokens: int = 0

    @property
    def next_note(self) -> str | None:
        """The note to give next; None at the end of an outline."""
        if len(self.notes) == 1:
            return self.notes[0]
        return self.notes[self.num_given] if self.num_given < len(self.notes) else None

    def is_due_after(self, text: str) -> bool:
        """Tell whether to give the note now, behind a chunk of this text.

        At the first line that ends after `every_tokens`; if none does for a while, at the end of a sentence or word,
        and at last after any whole character.
        """
        late_by = self.num_tokens - self.every_tokens
        if late_by < 0 or not text or self.next_note is None:
            return False
        patience = self.every_tokens // 4 + 32
        if late_by < patience:
            return text.endswith("\n")
        return late_by >= 2 * patience or text.endswith(_SENTENCE_ENDS)


@dataclass(frozen=True)
class NoteGiven:
    """A note went into the prompt here."""

    text: str


def steered(
    backend: Backend, request: GenerationRequest, steering: Steering, cancelled: Cancelled
) -> Iterator[Event | NoteGiven]:
    """Yield what `backend.generate` does, with notes in between; one `Finished` at the end of it all."""
    draft = _Draft(request)
    is_first = True
    num_tokens = 0
    while True:
        steering, finished = yield from _stretch(backend, draft, steering, cancelled, is_first, num_tokens)
        num_tokens = draft.num_tokens
        note = steering.next_note
        if finished is not None or note is None:
            yield replace(finished or Finished("stop"), num_generated_tokens=num_tokens)
            return
        yield NoteGiven(note)
        draft.add(note_for_model(note))
        steering = replace(steering, num_given=steering.num_given + 1, num_tokens=0)
        is_first = False


def _stretch(
    backend: Backend, draft: _Draft, steering: Steering, cancelled: Cancelled, is_first: bool, num_tokens: int
) -> Generator[Event, None, tuple[Steering, Finished | None]]:
    """Yield events up to the next note, which is due if None is returned in place of the end."""
    is_due = False

    def is_to_stop() -> bool:
        return is_due or cancelled()

    for event in backend.generate(draft.request(num_tokens), is_to_stop):
        match event:
            case TextChunk(text=text, token_ids=token_ids):
                draft.add(text, token_ids)
                steering = replace(steering, num_tokens=steering.num_tokens + len(token_ids))
                is_due = is_due or steering.is_due_after(text)
                yield event
            case PrefillProgress():
                if is_first or not event.reused_tokens:
                    yield event
            case Finished():
                is_over = event.reason != "cancelled" or not is_due or cancelled()
                return steering, event if is_over else None
    raise AssertionError("a backend ends every reply with Finished")


class _Draft:
    """The reply so far, as the next request shows it."""

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self._texts: list[str] = []
        self._pieces: list[str | list[int]] = []
        self.num_tokens = 0
        *before, last = request.messages or (Message("user", ""),)
        self._before = request.messages if last.role != "assistant" else tuple(before)
        if last.role == "assistant":
            self._texts.append(last.text)
            self._pieces += [
                piece if isinstance(piece, str) else list(piece) for piece in last.known_pieces or (last.text,)
            ]

    def add(self, text: str, token_ids: tuple[int, ...] | None = None) -> None:
        """Add text, drawn as these ids; None for text that was not drawn."""
        self._texts.append(text)
        if token_ids is None:
            self._pieces.append(text)
            return
        self.num_tokens += len(token_ids)
        if self._pieces and isinstance(last := self._pieces[-1], list):
            last.extend(token_ids)
        else:
            self._pieces.append(list(token_ids))

    def request(self, num_tokens: int) -> GenerationRequest:
        """Return the request that goes on, after `num_tokens` were drawn for the first one."""
        if not num_tokens:
            return self._request
        pieces = tuple(piece if isinstance(piece, str) else tuple(piece) for piece in self._pieces)
        limit = self._request.max_new_tokens
        return replace(
            self._request,
            messages=(*self._before, Message("assistant", "".join(self._texts), pieces=pieces)),
            max_new_tokens=None if limit is None else limit - num_tokens,
        )
