"""The contract between the app and whatever writes text.

A leaf is one module or package with a `load` function. It lives in a worker process of its own (see `app.worker`), is
called from one thread, and knows nothing of chats, browsers or files other than the model's. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from backends.events import Event, LoadProgress, MemoryFigures
from backends.requests import CachePolicy, GenerationRequest, LoadRequest

Cancelled = Callable[[], bool]
"""Asked between tokens and between prefill chunks; once true it stays true for that generation."""

ReportProgress = Callable[[LoadProgress], None]


@dataclass(frozen=True)
class LoadedModel:
    """What was loaded, in words and numbers the page shows.

    Attributes:
        name: of the file or folder.
        architecture: as the file names it.
        device: "cpu", or the GPU's name.
        precision: of the weights as held, in words ("int8 per channel", "Q4_K_M").
        policy: the one in force.
        num_sliding_layers, num_full_layers: by how they were trained.
        trained_window: of the sliding layers; None if no layer slides.
        window, sinks: as in force; sinks is the resolved number.
        asked_window: W as the load request has it; `notices` say why another is in force.
        context_tokens: length the model was trained for; None if the file does not say.
        vocab_size: rows of the logits.
        weights_bytes: as held.
        kv_bytes_per_token_full: growth per token if nothing were bounded.
        has_chat_template: if not, the model only continues text.
        reasoning_opening: mark of reasoning that the template ends a prompt with, so that replies lack it; see
            `models.reasoning`. Empty for none.
        drafts_together: whether the backend `DraftsTogether`; the app is in another process and cannot look.
        notices: sentences the person should see (approximations, ignored settings, fallbacks).
    """

    name: str
    architecture: str
    device: str
    precision: str
    policy: CachePolicy
    num_sliding_layers: int
    num_full_layers: int
    trained_window: int | None
    window: int
    sinks: int
    context_tokens: int | None
    vocab_size: int
    weights_bytes: int
    kv_bytes_per_token_full: int
    has_chat_template: bool
    notices: tuple[str, ...] = ()
    reasoning_opening: str = ""
    drafts_together: bool = False
    asked_window: int = 0


class Backend(Protocol):
    """A loaded model. Every method is called from the thread that loaded it."""

    @property
    def info(self) -> LoadedModel: ...

    def generate(self, request: GenerationRequest, cancelled: Cancelled) -> Iterator[Event]:
        """Yield `PrefillProgress` and `TextChunk` events, then exactly one `Finished`.

        One `TextChunk` a token. After `Finished`, or after the iterator is closed early, the backend takes the next
        request. Cancelling ends within one token or one prefill chunk with reason "cancelled".

        Raises:
            RingsideError: the request cannot be served; the backend is still usable.
        """
        ...

    def memory(self) -> MemoryFigures:
        """Figures as of the last event; cheap enough to call ten times a second."""
        ...

    def close(self) -> None:
        """Give back what can be given back; the worker process then exits."""
        ...


@runtime_checkable
class ScoresText(Protocol):
    """What a backend may offer besides: how well it predicts a given text."""

    def token_losses(self, text: str, cancelled: Cancelled) -> Iterator[float]:
        """Yield -ln p of each of the text's tokens but the first, in nats, from an empty cache and under its policy.

        The beginning-of-text token is put first where the model has one and then predicts the text's first token.
        """
        ...


@runtime_checkable
class KeepsState(Protocol):
    """What a backend may offer besides: to keep in a file what it has read, and to take it up after a restart.

    Both are called between two events of a generation, before the first or after the last.
    """

    def save_state(self, path: str, budget_bytes: int) -> int:
        """Write what is held now to a new file; return its bytes, 0 if it is beyond the budget or there is nothing."""
        ...

    def load_state(self, path: str) -> int:
        """Take what `save_state` wrote as if it had just been read; return its tokens.

        The next request uses it if it begins with those tokens.

        Raises:
            BadRequestError: the file is damaged, or was written for another model, policy, window or version.
        """
        ...


@runtime_checkable
class DraftsTogether(Protocol):
    """What a backend offers where `info.drafts_together`: several replies to one prompt in one go."""

    def generate_together(
        self, request: GenerationRequest, seeds: Sequence[int], cancelled: Callable[[int], bool]
    ) -> Iterator[tuple[int, Event]]:
        """Yield for every seed, by its place among them, the events that `generate` would with that seed.

        The prompt is read once. The events of different seeds come mixed; a reply that has ended has nothing more. One
        whose output is not a number ends with reason "error" and leaves the others alone.

        Args:
            request: its own seed is not read.
            seeds: one a reply, at least one.
            cancelled: as `Cancelled`, by place.

        Raises:
            RingsideError: the request cannot be served; the backend is still usable.
        """
        ...


@runtime_checkable
class SpellsTokens(Protocol):
    """What a backend may offer besides: what its tokens stand for."""

    def piece(self, token_id: int) -> bytes:
        """Return the bytes of a token of the last prompt, a control token by its name."""
        ...


class Leaf(Protocol):
    """The module-level function every backend leaf offers."""

    def load(self, request: LoadRequest, progress: ReportProgress) -> Backend:
        """Load a model.

        Raises:
            RingsideError: with the file or value at fault and the way out.
        """
        ...
