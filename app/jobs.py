"""What the engine is given to do: a run to write, how to ask for it, and who keeps what comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from app.limits import Limits
from app.run_views import Ending
from app.runs import Run
from app.saved_states import StatePlan
from app.steering import Steering
from backends.contract import LoadedModel
from backends.requests import GenerationRequest, LoadRequest


class Keeper(Protocol):
    """Whoever keeps a reply; called from the engine's thread (from the canceller's for a job that never ran)."""

    def started(self, run: Run, model: LoadedModel) -> None:
        """The worker has the request."""

    def advanced(self, run: Run) -> None:
        """Called at every report and at least four times a second while the run lasts."""

    def ended(self, run: Run, ending: Ending) -> None:
        """Called once, before followers learn of the end."""


class NothingKept:
    """Keeps nothing: for runs whose text goes elsewhere."""

    def started(self, run: Run, model: LoadedModel) -> None:
        """Do nothing."""

    def advanced(self, run: Run) -> None:
        """Do nothing."""

    def ended(self, run: Run, ending: Ending) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Draft:
    """One of several replies to the same prompt.

    Attributes:
        group: the same for all of them; their requests differ in the seed alone.
        seed: of this one.
    """

    group: str
    seed: int


@dataclass(frozen=True)
class Job:
    """One reply to write.

    Attributes:
        make_request: called when the job's turn comes, so that a message queued behind another sees its reply.
        limits: what ends the reply besides the model and its request.
        steering: notes given on the way; None for none.
        state: where the backend's state is kept between runs; None keeps none.
        draft: what it is written together with, where the backend can do that; None is written alone.
    """

    run: Run
    load: LoadRequest
    make_request: Callable[[], GenerationRequest]
    keeper: Keeper
    limits: Limits = field(default_factory=Limits)
    steering: Steering | None = None
    state: StatePlan | None = None
    draft: Draft | None = None

    def is_drafted_with(self, other: Job) -> bool:
        """Tell whether both are drafts of one group."""
        return self.draft is not None and other.draft is not None and self.draft.group == other.draft.group
