"""What the engine and a worker process say to each other: small frozen values, pickled over a pipe."""

from __future__ import annotations

from dataclasses import dataclass

from app.fed_prompts import FedPrompt
from app.saved_states import StatePlan
from app.steering import Steering
from backends.contract import LoadedModel
from backends.errors import RingsideError
from backends.events import Finished, LoadProgress, MemoryFigures, PrefillProgress
from backends.requests import GenerationRequest


@dataclass(frozen=True)
class Generate:
    """Engine to worker: start generation `number`; numbers grow.

    Attributes:
        steering: notes given on the way.
        state: where the backend's state is kept and may lie from before; None keeps none.
    """

    number: int
    request: GenerationRequest
    steering: Steering | None = None
    state: StatePlan | None = None


@dataclass(frozen=True)
class GenerateTogether:
    """Engine to worker: start several generations of one request, a seed each; see `backends.contract.DraftsTogether`.

    Attributes:
        numbers: one a seed.
        state: as of `Generate`.
    """

    numbers: tuple[int, ...]
    request: GenerationRequest
    seeds: tuple[int, ...]
    state: StatePlan | None = None


@dataclass(frozen=True)
class Cancel:
    """Engine to worker: end generation `number`, or do not start it."""

    number: int


@dataclass(frozen=True)
class Shutdown:
    """Engine to worker: close the backend and exit."""


Command = Generate | GenerateTogether | Cancel | Shutdown


@dataclass(frozen=True)
class Ready:
    """The model is loaded."""

    model: LoadedModel
    memory: MemoryFigures


@dataclass(frozen=True)
class LoadFailed:
    """The model could not be loaded; the process exits."""

    error: RingsideError


@dataclass(frozen=True)
class Update:
    """What came since the last update of a generation; text and ids may be empty.

    Attributes:
        num_generated_tokens: since the start of this generation.
        time_s: since the start of this generation, of the last token in it (or of this sign of life).
        first_token_s: of the first token in it; None if it has none.
        prefill: newest progress, once, and the moment of it.
        process_bytes: resident memory of this process.
    """

    number: int
    text: str
    token_ids: tuple[int, ...]
    num_generated_tokens: int
    time_s: float
    first_token_s: float | None
    prefill: PrefillProgress | None
    prefill_s: float
    memory: MemoryFigures | None
    process_bytes: int


@dataclass(frozen=True)
class PromptFed:
    """What the model is given, before any of it is read."""

    number: int
    prompt: FedPrompt


@dataclass(frozen=True)
class Noted:
    """A steering note went into the prompt behind everything reported so far."""

    number: int
    text: str


@dataclass(frozen=True)
class Ended:
    """The end of a generation, after all its updates. `error` is set exactly if `finished.reason` is "error"."""

    number: int
    finished: Finished
    time_s: float
    error: RingsideError | None = None


Report = LoadProgress | Ready | LoadFailed | PromptFed | Update | Noted | Ended
