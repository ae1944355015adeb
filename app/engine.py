"""Owner of the worker process: loads, generates, cancels, notices a death. Lives in the process of the page.

One thread of its own serves one job after another; everything else only queues, cancels and looks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from typing_extensions import assert_never

from app.engine_status import EngineStatus
from app.fed_prompts import FedPrompt
from app.jobs import Job
from app.run_views import Ending
from app.runs import Run
from app.serving import Serving, end
from app.worker_messages import Cancel, Ended, LoadFailed, PromptFed, Ready, Report, Update
from app.worker_process import WorkerProcess
from backends.contract import LoadedModel
from backends.errors import BadRequestError, DeviceLostError, RingsideError, WorkerDiedError
from backends.events import LoadProgress
from backends.requests import LoadRequest

_TICK_S = 0.25
_IDLE_TICK_S = 1.0


@dataclass(frozen=True)
class _Load:
    load: LoadRequest


@dataclass(frozen=True)
class _Unload:
    done: threading.Event = field(default_factory=threading.Event)


class Engine:
    """One worker, one model, one generation at a time; further jobs wait in a queue everyone can see.

    Drafts of one prompt that stand behind each other in the queue are one generation where the backend can do that.

    Args:
        log_path: file for what the worker prints.
        grace_s: a worker that has not stopped this long after a cancel is killed.
        clock: seconds, for the grace.

    Attributes:
        on_prompt: told what the model is given for a run, before any of it is read; from the engine's thread.
    """

    def __init__(
        self, log_path: Path | None = None, grace_s: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.on_prompt: Callable[[Run, FedPrompt], None] = lambda run, prompt: None
        self._log_path = log_path
        self._grace_s = grace_s
        self._clock = clock
        self._changed = threading.Condition()
        self._tasks: deque[Job | _Load | _Unload] = deque()
        self._current: Job | _Load | _Unload | None = None
        self._worker: WorkerProcess | None = None
        self._status = EngineStatus()
        self._number = 0
        self._serving = Serving()
        self._is_device_lost = False
        self._held_for = ""
        self._closing = False
        self._thread: threading.Thread | None = None

    # For everyone

    def submit(self, *jobs: Job) -> None:
        """Queue jobs in one step; their runs tell what becomes of them."""
        if self._held_for:
            for job in jobs:
                job.run.warn(self._held_for)
        self._enqueue(*jobs)

    def load(self, request: LoadRequest) -> None:
        """Queue the loading of a model; `status` tells what becomes of it."""
        self._enqueue(_Load(request))

    def runs(self) -> list[Run]:
        """Return the running and waiting runs in the order they are served."""
        with self._changed:
            jobs = [*self._serving.jobs.values(), *(task for task in self._tasks if isinstance(task, Job))]
            runs = [job.run for job in jobs]
        return [run for run in runs if not run.finished]  # a run is over a moment before its task is

    def cancel(self, run: Run) -> None:
        """Stop a run or take it off the queue; one that is over or unknown is left alone."""
        with self._changed:
            waiting = next((t for t in self._tasks if isinstance(t, Job) and t.run is run), None)
            if waiting is not None:
                self._tasks.remove(waiting)
                self._number_waiting()
            elif (number := self._serving.number_of(run)) is not None and not run.cancelling:
                run.ask_to_stop()
                self._interrupt(number)
        if waiting is not None:
            end(waiting, Ending("cancelled"))

    def unload(self) -> None:
        """Stop everything and end the worker; returns when the process is gone."""
        for run in reversed(self.runs()):
            self.cancel(run)
        task = _Unload()
        with self._changed:
            for load in [each for each in self._tasks if isinstance(each, _Load)]:
                self._tasks.remove(load)
            if isinstance(self._current, _Load):
                self._interrupt()
        self._enqueue(task)
        task.done.wait()

    def hold(self, reason: str) -> None:
        """Serve nothing until `release`: what is asked for meanwhile waits, and its run says the reason.

        Raises:
            BadRequestError: a reply is being written or a model is being loaded.
        """
        with self._changed:
            if self._current is not None or self._tasks or self._held_for:
                raise BadRequestError(
                    "The chat is writing or loading a model, and that and a measurement would disturb each other.",
                    "Stop it, or wait for its end.",
                )
            self._held_for = reason

    def release(self) -> None:
        """Serve again, first what has waited."""
        with self._changed:
            self._held_for = ""
            self._changed.notify_all()

    def status(self) -> EngineStatus:
        """Return what the engine is doing; memory of the process is read now."""
        with self._changed:
            status, worker = self._status, self._worker
            num_waiting = sum(isinstance(task, Job) for task in self._tasks)
        if worker is None:
            return replace(status, num_waiting=num_waiting, held_for=self._held_for)
        return replace(status, worker_pid=worker.pid, process_bytes=worker.process_bytes(), num_waiting=num_waiting)

    def close(self) -> None:
        """Stop everything, end the worker and the engine's thread. Twice is fine."""
        if self._closing:
            return
        self.unload()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _enqueue(self, *tasks: Job | _Load | _Unload) -> None:
        with self._changed:
            if self._closing:
                raise RingsideError("Ringside is closing.", "Start it again to go on.")
            self._tasks.extend(tasks)
            self._number_waiting()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _number_waiting(self) -> None:
        if self._current is None and not self._held_for:
            return  # the first is served at once
        runs = [task.run for task in self._tasks if isinstance(task, Job)]
        for position, run in enumerate(runs, start=1):
            run.wait_at(position)

    def _interrupt(self, number: int = 0) -> None:
        """Make the current task end: by word if it generates, by force if it loads. The lock is held."""
        if self._worker is None:
            return
        if self._status.state == "generating":
            self._worker.send(Cancel(number))
        elif self._status.state == "loading":
            self._worker.kill()

    # The engine's thread

    def _serve(self) -> None:
        while (task := self._next_task()) is not None:
            try:
                self._do(task)
            finally:
                with self._changed:
                    self._current = None

    def _next_task(self) -> Job | _Load | _Unload | None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._servable() or self._closing, _IDLE_TICK_S)
                if (task := self._servable()) is not None:
                    self._tasks.remove(task)
                    self._current = task
                    if isinstance(task, Job):
                        self._start_serving(task)
                    self._number_waiting()
                    return self._current
                if self._closing:
                    return None
            self._notice_death_while_idle()

    def _servable(self) -> Job | _Load | _Unload | None:
        """Return the task whose turn it is; while the engine is held only unloading has one."""
        return next((task for task in self._tasks if not self._held_for or isinstance(task, _Unload)), None)

    def _do(self, task: Job | _Load | _Unload) -> None:
        match task:
            case Job():
                self._run(task)
            case _Load():
                try:
                    self._ensure_loaded(task.load, None)
                except RingsideError:
                    return  # `status` tells
            case _Unload():
                self._drop_worker()
                task.done.set()
            case _:
                assert_never(task)

    def _run(self, job: Job) -> None:
        ending = Ending("error", error="The engine failed.", hint="The terminal has the details; please report this.")
        is_failure = True
        try:
            self._generate(job)
        except RingsideError as error:
            ending, is_failure = Ending("error", error=error.message, hint=error.hint), False
            if not job.run.cancelling:
                self._take_drafts_of(job)  # they would meet the same
        finally:
            for number, each in tuple(self._serving.jobs.items()):
                self._end(number, Ending("cancelled") if each.run.cancelling and not is_failure else ending)

    def _generate(self, job: Job) -> None:
        """Have a job written, and with it the drafts beside it; each is ended as it ends."""
        request = job.make_request()
        worker, model = self._ensure_loaded(job.load, job.run)
        with self._changed:
            if job.run.cancelling:
                raise RingsideError("Cancelled before it began.")
            if model.drafts_together and job.steering is None:
                self._take_drafts_of(job)
            self._status = replace(self._status, state="generating")
            for each in self._serving.jobs.values():
                each.run.start(model)
            worker.send(self._serving.command(request))
        for each in self._serving.jobs.values():
            each.keeper.started(each.run, model)
        self._is_device_lost = False
        try:
            last = self._follow(worker)
            if self._is_device_lost:  # nothing would work in that process again
                self._drop_worker()
        except WorkerDiedError:
            self._drop_worker()
            raise
        finally:
            with self._changed:
                if self._worker is not None:
                    self._status = replace(self._status, state="ready")
        self._end(*last)

    def _start_serving(self, job: Job) -> None:
        """Give a job the next number. The lock is held."""
        self._number += 1
        self._serving.jobs[self._number] = job

    def _take_drafts_of(self, job: Job) -> None:
        """Serve what waits of the same drafts as well."""
        with self._changed:
            for task in tuple(self._tasks):
                if isinstance(task, Job) and task.is_drafted_with(job):
                    self._tasks.remove(task)
                    self._start_serving(task)
            self._number_waiting()

    def _end(self, number: int, ending: Ending) -> None:
        end(self._serving.jobs[number], ending)
        with self._changed:
            del self._serving.jobs[number]

    def _follow(self, worker: WorkerProcess) -> tuple[int, Ending]:
        """Pass the worker's reports on until the generation ends; return the last to end, which has yet to be told."""
        give_up_at_s: float | None = None
        while True:
            report = worker.receive(_TICK_S)
            self._note_memory(report)
            self._note_model(report)
            self._note_prompt(report)
            ended = self._serving.take(report, lambda number: worker.send(Cancel(number)))
            if ended is not None:
                if len(self._serving.jobs) == 1:
                    return ended
                self._end(*ended)
            if self._serving.is_stopping and give_up_at_s is None:
                give_up_at_s = self._clock() + self._grace_s
            if give_up_at_s is not None and self._clock() >= give_up_at_s:
                worker.kill()

    def _note_prompt(self, report: Report | None) -> None:
        if isinstance(report, PromptFed) and (job := self._serving.jobs.get(report.number)) is not None:
            self.on_prompt(job.run, report.prompt)

    def _note_model(self, report: Report | None) -> None:
        """Take what the model has turned out to be, and whether its device is lost."""
        if isinstance(report, Ready):
            with self._changed:
                self._status = replace(self._status, model=report.model)
        self._is_device_lost |= isinstance(report, Ended) and isinstance(report.error, DeviceLostError)

    def _note_memory(self, report: Report | None) -> None:
        if isinstance(report, Update) and report.memory is not None:
            with self._changed:
                self._status = replace(self._status, memory=report.memory)

    def _ensure_loaded(self, request: LoadRequest, run: Run | None) -> tuple[WorkerProcess, LoadedModel]:
        worker, model = self._worker, self._status.model
        if worker is not None and model is not None and self._status.request == request and worker.is_alive():
            return worker, model
        self._drop_worker()
        with self._changed:
            if run is not None and run.cancelling:
                raise RingsideError("Cancelled before the model was loaded.")
            self._status = EngineStatus("loading", request, progress=LoadProgress("Starting"))
            self._worker = worker = WorkerProcess(request, self._log_path)
        try:
            ready = self._wait_until_loaded(worker, run)
        except RingsideError as error:
            self._drop_worker()
            was_asked = run is not None and run.cancelling  # a load is stopped by ending its process
            failure = EngineStatus(request=request, error=error.message, hint=error.hint)
            with self._changed:
                self._status = EngineStatus() if was_asked else failure
            raise
        with self._changed:
            self._status = EngineStatus("ready", request, ready.model, memory=ready.memory)
        return worker, ready.model

    def _wait_until_loaded(self, worker: WorkerProcess, run: Run | None) -> Ready:
        while True:
            match report := worker.receive(_TICK_S):
                case Ready():
                    return report
                case LoadFailed(error=error):
                    raise error
                case LoadProgress():
                    with self._changed:
                        self._status = replace(self._status, progress=report)
                    if run is not None:
                        run.load(report)
                case _:
                    pass

    def _drop_worker(self) -> None:
        with self._changed:
            worker, self._worker = self._worker, None
            self._status = EngineStatus()
        if worker is not None:
            worker.stop()

    def _notice_death_while_idle(self) -> None:
        worker = self._worker
        if worker is None or worker.is_alive():
            return
        try:
            worker.receive(0)
        except WorkerDiedError as error:
            self._drop_worker()
            with self._changed:
                self._status = EngineStatus(error=error.message, hint=error.hint)
