"""What the worker is writing now: one reply, or several drafted together, each from its start to its own end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from app.jobs import Job
from app.run_views import Ending
from app.runs import Run
from app.worker_messages import Ended, Generate, GenerateTogether, Noted, Report, Update
from backends.errors import RingsideError
from backends.events import Finished, FinishReason
from backends.requests import GenerationRequest


@dataclass
class Serving:
    """Jobs by the number of their generation, until each has ended. The engine's thread alone changes it.

    Attributes:
        jobs: those that have not ended.
    """

    jobs: dict[int, Job] = field(default_factory=dict)
    _stopped_for: dict[int, FinishReason] = field(default_factory=dict)

    def number_of(self, run: Run) -> int | None:
        """Return the number a run has here; None if it is not here."""
        return next((number for number, job in tuple(self.jobs.items()) if job.run is run), None)

    @property
    def is_stopping(self) -> bool:
        """Whether all that is left was asked to stop."""
        return all(job.run.cancelling or number in self._stopped_for for number, job in self.jobs.items())

    def command(self, request: GenerationRequest) -> Generate | GenerateTogether:
        """Return what to tell the worker, given the request of the first."""
        first, *others = self.jobs.values()
        if not others:
            return Generate(next(iter(self.jobs)), request, first.steering, first.state)
        seeds = tuple(job.draft.seed for job in self.jobs.values() if job.draft is not None)
        return GenerateTogether(tuple(self.jobs), request, seeds, first.state)

    def take(self, report: Report | None, cancel: Callable[[int], None]) -> tuple[int, Ending] | None:
        """Pass a report on to its run, and have the keepers look; return the number of the job it ends, and how.

        Args:
            cancel: called with the number of a reply that its limits end.
        """
        match report:
            case Update(number=number) if number in self.jobs:
                self._advance(report, cancel)
            case Noted(number=number, text=text) if number in self.jobs:
                self.jobs[number].run.steer(text)
            case Ended(number=number, finished=finished, error=error) if number in self.jobs:
                stopped_for = None if self.jobs[number].run.cancelling else self._stopped_for.get(number)
                return number, _ending(finished, error, stopped_for)
            case _:
                pass
        for job in self.jobs.values():
            job.keeper.advanced(job.run)
        return None

    def _advance(self, update: Update, cancel: Callable[[int], None]) -> None:
        job = self.jobs[update.number]
        job.run.advance(update)
        loop_tokens = job.run.loop_tokens
        job.run.warn(job.limits.warning(loop_tokens))
        reason = job.limits.reached(update, loop_tokens)
        if reason is not None and update.number not in self._stopped_for:
            self._stopped_for[update.number] = reason
            cancel(update.number)


def end(job: Job, ending: Ending) -> None:
    """Have the end of a job kept, and then let followers know of it."""
    try:
        job.keeper.ended(job.run, ending)
    finally:
        job.run.finish(ending)


def _ending(finished: Finished, error: RingsideError | None, stopped_for: FinishReason | None) -> Ending:
    if error is not None:
        return Ending("error", error=error.message, hint=error.hint)
    was_stopped = finished.reason == "cancelled" and stopped_for is not None
    return Ending(stopped_for if was_stopped and stopped_for else finished.reason, finished.seed)
