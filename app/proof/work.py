"""What the page can have measured: the comparison, the doctor's walk and the minimal experiment, each as a `Work`.

They drive the same generators as the commands; only where progress goes differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.proof import compare, compare_report, doctor, doctor_report
from app.proof import experiment as cache_experiment
from app.proof.background import Stage
from app.proof.configurations import Configuration
from app.proof.report import Report
from app.proof.verdicts import Symptom, Verdict
from backends.requests import LoadRequest
from models.backend_support import config_for
from models.catalog import resolve
from models.model_files import ModelFiles
from models.step_cost import StepCost


@dataclass
class Comparing:
    """Two to four configurations of one model, one after another in fresh workers."""

    configurations: Sequence[Configuration]
    fixed: compare.Experiment
    data_folder: Path
    log_path: Path | None = None
    comparison: compare.Comparison = field(init=False)

    def __post_init__(self) -> None:
        self.comparison = compare.Comparison(self.fixed)

    @property
    def title(self) -> str:
        return f"{_short(self.configurations[0].load)}: " + " / ".join(each.label for each in self.configurations)

    def steps(self) -> Generator[Stage, None, None]:
        found: list[Configuration] = []
        for each in self.configurations:
            load = yield from _found(each.load, self.data_folder)
            found.append(replace(each, load=load))
        with closing(compare.run(self.comparison, found, self.log_path)) as steps:
            for step in steps:
                yield Stage(f"{step.index} of {step.count}, {step.label}: {step.stage}", step.done, step.total)

    def report(self, stopped: bool) -> Report:
        self.comparison.stopped = stopped
        return compare_report.report(self.comparison)

    def verdicts(self) -> list[dict[str, Any]]:
        return []


@dataclass
class Examining:
    """The doctor's checks on one configuration."""

    visit: doctor.Visit
    data_folder: Path
    found: list[Verdict] = field(default_factory=list)

    @property
    def title(self) -> str:
        load = self.visit.load
        return f"{_short(load)}: {load.backend}, {load.policy.value}, W = {load.window:,}"

    def steps(self) -> Generator[Stage, None, None]:
        load = yield from _found(self.visit.load, self.data_folder)
        config = config_for(ModelFiles.open(load.model), load.backend)
        self.visit = replace(self.visit, load=load, config=config)
        with closing(doctor.walk(self.visit)) as steps:
            for step in steps:
                if isinstance(step, Verdict):
                    self.found.append(step)
                    yield Stage(step.question)
                else:
                    yield Stage(step.stage, step.done, step.total)

    def report(self, stopped: bool) -> Report:
        return doctor_report.report(self.visit, self.found)

    def verdicts(self) -> list[dict[str, Any]]:
        return [{**dataclasses.asdict(verdict), "question": verdict.question} for verdict in self.found]


def examining(load: LoadRequest, data_folder: Path, symptom: Symptom | None, **options: Any) -> Examining:
    """Return the doctor's visit; the model's config is read when it begins."""
    return Examining(doctor.Visit(load, None, symptom, **options), data_folder)


@dataclass
class Experimenting:
    """One attention layer, random tokens, four ways to keep a window; no model."""

    windows: Sequence[int] = cache_experiment.WINDOWS
    longest: int = 32_768
    costs: list[StepCost] = field(default_factory=list)

    @property
    def title(self) -> str:
        return "Four ways to keep a window, no model"

    def steps(self) -> Generator[Stage, None, None]:
        yield Stage("Starting PyTorch")
        with closing(cache_experiment.measure(self.windows, self.longest)) as costs:
            for cost in costs:
                self.costs.append(cost)
                yield Stage(f"{cache_experiment.NAMES[cost.strategy]}, W = {cost.window:,}, {cost.tokens:,} tokens")

    def report(self, stopped: bool) -> Report:
        return cache_experiment.report(self.costs)

    def verdicts(self) -> list[dict[str, Any]]:
        return []


def _found(load: LoadRequest, data_folder: Path) -> Generator[Stage, None, LoadRequest]:
    """Return the request with the model's path, fetching the model if need be."""
    if load.backend == "echo":
        return load
    yield Stage("Looking for the model, which is fetched if it is not here")
    path = resolve(load.model, lambda progress: None, data_folder)
    return replace(load, model=str(path))


def _short(load: LoadRequest) -> str:
    return "Echo" if load.backend == "echo" else Path(load.model).name
