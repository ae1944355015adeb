"""The commands of the proof at work: they drive the measurements, show progress, and print what was found."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

from app.proof import estimate_check, estimate_report, machine
from app.proof import experiment as cache_experiment
from app.proof.compare import Comparison, Experiment, Progress, outcomes, run
from app.proof.compare_report import report as comparison_report
from app.proof.configurations import parse_configurations
from app.proof.doctor import Visit, walk
from app.proof.doctor_report import report as doctor_report
from app.proof.doctor_report import verdict_text
from app.proof.estimate import Outlook, Surroundings, outlook
from app.proof.measurement import Measurement
from app.proof.printing import note, print_json, print_text, progress_bar, show
from app.proof.report import Report
from app.proof.scoring import reference_text
from app.proof.verdicts import Symptom, Verdict
from app.settings import worker_log_path
from backends.errors import BadRequestError
from backends.events import LoadProgress
from backends.requests import CachePolicy, LoadRequest
from models.backend_support import config_for
from models.catalog import resolve
from models.chat_template import find_templates
from models.demo import DEFAULT_DEMO
from models.model_files import ModelFiles
from models.step_cost import StepCost


def load_request(
    model: str | None, backend: str, policy: CachePolicy, window: int, sinks: int, threads: int | None = None
) -> LoadRequest:
    """Return what the options describe, the model fetched if need be; the echo backend needs none.

    Raises:
        ModelFileError: there is no such model.
    """
    path = "" if backend == "echo" else str(model_path(model))
    return LoadRequest(backend, path, policy=policy, window=window, sinks=sinks, num_threads=threads)


def estimate(
    load: LoadRequest,
    expected_tokens: int | None,
    windows: Sequence[int],
    output: Path | None,
    as_json: bool,
    is_checked: bool = False,
) -> None:
    """Print what a model takes, and when a ring is the wrong choice; if wanted, beside what is then measured."""
    files = ModelFiles.open(load.model)
    on_gpu = machine.gpu_name() is not None
    around = Surroundings(
        free_bytes=machine.free_bytes(on_gpu),
        on_gpu=on_gpu,
        runtime_bytes=machine.runtime_bytes(load.backend),
        expected_tokens=expected_tokens,
        has_chat_template=bool(find_templates(files)),
    )
    found = outlook(files, load, around, windows)
    if as_json:
        print_json(estimate_report.results(found))
    report = estimate_report.report(found, files.config(), on_gpu, tuple(files.weights.encodings))
    if is_checked:
        measured = _measured(load, as_json)
        found = outlook(files, estimate_check.as_measured(load, measured), around)
        report = _with_check(report, found, measured, as_json)
    show(report, output, as_json)


def _measured(load: LoadRequest, as_json: bool) -> Measurement:
    """Load the model and measure, showing how far that is."""
    with closing(estimate_check.run(load, worker_log_path())) as steps, progress_bar(as_json) as bar:
        task = bar.add_task("Loading and writing past a full window", total=None)
        for measured in steps:
            bar.update(task, completed=len(measured.token_ids))
    return measured


def _with_check(report: Report, found: Outlook, measured: Measurement, as_json: bool) -> Report:
    """Return the report with what was measured beside what was estimated for it."""
    figures, sentence = estimate_check.checked(found, measured), estimate_check.check_sentence(found, measured)
    results = [dataclasses.asdict(each) | {"difference": each.difference, "is_kept": each.is_kept} for each in figures]
    if as_json:
        print_json({"event": "check", "figures": results, "note": sentence})
    return dataclasses.replace(
        report,
        tables=[*report.tables, estimate_check.check_table(figures)],
        sentences=[sentence, *report.sentences],
        results=report.results | {"check": results},
    )


def compare(
    load: LoadRequest, specs: Sequence[str], fixed: Experiment, output: Path | None, as_json: bool, svg: bool
) -> None:
    """Run the configurations; Ctrl-C keeps what was measured."""
    configurations = parse_configurations(specs, load)
    comparison = Comparison(fixed)
    try:
        _follow(run(comparison, configurations, worker_log_path()), as_json)
    except KeyboardInterrupt:
        comparison.stopped = True
        note("Stopped; what was measured is kept.")
    if as_json:
        for outcome in outcomes(comparison):
            print_json(dataclasses.asdict(outcome))
    show(comparison_report(comparison), output, as_json, svg)


def doctor(
    load: LoadRequest,
    symptom: Symptom | None,
    num_tokens: int,
    text: str | None,
    text_tokens: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Walk the checks, printing each verdict when it is there."""
    config = config_for(ModelFiles.open(load.model), load.backend)
    visit = Visit(load, config, symptom, num_tokens, text, text_tokens, worker_log_path())
    verdicts: list[Verdict] = []
    try:
        with closing(walk(visit)) as steps, progress_bar(as_json) as bar:
            task = bar.add_task("Starting", total=None)
            for step in steps:
                if isinstance(step, Verdict):
                    verdicts.append(step)
                    _say(step, as_json)
                else:
                    bar.update(task, description=step.stage, completed=step.done, total=step.total or None)
    except KeyboardInterrupt:
        note("Stopped; what was found so far stands.")
    if output is not None:
        show(doctor_report(visit, verdicts), output, as_json=True)


def experiment(windows: Sequence[int], longest: int, output: Path | None, as_json: bool, svg: bool) -> None:
    """Measure the four ways to keep a window."""
    costs: list[StepCost] = []
    try:
        with progress_bar(as_json) as bar:
            task = bar.add_task("Measuring", total=None)
            for cost in cache_experiment.measure(windows or cache_experiment.WINDOWS, longest):
                costs.append(cost)
                bar.update(task, description=f"W = {cost.window:,}, {cost.tokens:,} tokens")
                if as_json:
                    print_json(dataclasses.asdict(cost))
    except KeyboardInterrupt:
        note("Stopped; what was measured is kept.")
    show(cache_experiment.report(costs), output, as_json, svg)


def reference(path: Path | None, num_tokens: int) -> str | None:
    """Return the text to score, if any is to be scored."""
    if not num_tokens:
        return None
    return read_text(path) if path else reference_text()


def read_text(path: Path) -> str:
    """Read a text file. Raises BadRequestError where it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(f"{path} is not a readable text file: {error}.") from error


def model_path(model: str | None) -> Path:
    """Return the path behind a name, the sliding-window demo's without one, fetching it if need be.

    Raises:
        ModelFileError: there is no such model.
    """
    with progress_bar(hidden=False) as bar:
        task = bar.add_task("Looking for the model", total=None)

        def report(progress: LoadProgress) -> None:
            bar.update(task, description=progress.stage, completed=progress.done, total=progress.total)

        return resolve(model or DEFAULT_DEMO, report)


def _follow(steps: Generator[Progress, None, None], as_json: bool) -> None:
    """Show where a comparison is; with JSON, say nothing. Ctrl-C ends the worker of the moment."""
    with closing(steps), progress_bar(as_json) as bar:
        task = bar.add_task("Starting", total=None)
        for step in steps:
            description = f"{step.index}/{step.count} {step.label}: {step.stage}"
            bar.update(task, description=description, completed=step.done, total=step.total or None)


def _say(verdict: Verdict, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(verdict))
    else:
        print_text(verdict_text(verdict))
