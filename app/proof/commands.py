"""The commands of the proof: they print what the other modules here compute."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.proof import estimate_report, machine
from app.proof import experiment as cache_experiment
from app.proof.compare import DEFAULT_PROMPT, Comparison, Experiment, Progress, outcomes, run
from app.proof.compare_report import report as comparison_report
from app.proof.configurations import parse_configurations
from app.proof.doctor import Visit, walk
from app.proof.doctor_report import report as doctor_report
from app.proof.doctor_report import verdict_text
from app.proof.estimate import Surroundings, outlook
from app.proof.printing import guarded, note, print_json, progress_bar, show
from app.proof.scoring import reference_text
from app.proof.verdicts import Symptom, Verdict
from app.settings import worker_log_path
from backends.errors import BadRequestError
from backends.events import LoadProgress
from backends.requests import CachePolicy, LoadRequest
from models.catalog import resolve
from models.chat_template import ChatTemplate
from models.demo import DEFAULT_DEMO
from models.model_files import ModelFiles
from models.step_cost import StepCost

Model = Annotated[str, typer.Argument(help="A GGUF file, a Hugging Face folder, or a demo model's name.")]
Backend = Annotated[str, typer.Option("--backend", "-b", help="ring or llamacpp.")]
Window = Annotated[int, typer.Option("--window", "-w", min=1, help="Tokens a bounded layer sees.")]
Sinks = Annotated[int, typer.Option("--sinks", "-s", min=0, help="First tokens pinned on full-attention layers.")]
Policy = Annotated[CachePolicy, typer.Option("--policy", "-p", help="What is kept of the past.")]
Reference = Annotated[Path | None, typer.Option(help="A text to score; default: Python's language reference.")]
ReferenceTokens = Annotated[int, typer.Option(min=0, help="How much of it to score; 0 leaves it out.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line and nothing else.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write the HTML report and its JSON.")]


def register(cli: typer.Typer) -> None:
    """Add the commands of the proof to the command line."""
    for command in (estimate, compare, doctor, experiment):
        cli.command(command.__name__)(guarded(command))


def estimate(
    model: Model = DEFAULT_DEMO,
    backend: Backend = "ring",
    window: Window = 512,
    sinks: Sinks = 4,
    policy: Policy = CachePolicy.RING,
    tokens: Annotated[int | None, typer.Option(help="Length you expect, prompt and reply together.")] = None,
    windows: Annotated[list[int] | None, typer.Option("--also", help="Windows of the table; repeatable.")] = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Tell what a model takes before loading it, at which windows, and when a ring is the wrong choice."""
    files = ModelFiles.open(model_path(model))
    request = LoadRequest(backend, str(files.path), policy=policy, window=window, sinks=sinks)
    on_gpu = machine.gpu_name() is not None
    around = Surroundings(
        free_bytes=machine.free_bytes(on_gpu),
        on_gpu=on_gpu,
        runtime_bytes=machine.runtime_bytes(backend),
        expected_tokens=tokens,
        has_chat_template=ChatTemplate.find(files) is not None,
    )
    found = outlook(files, request, around, windows or ())
    if as_json:
        print_json(estimate_report.results(found))
    show(estimate_report.report(found, files.config(), on_gpu), output, as_json)


def compare(
    model: Model = DEFAULT_DEMO,
    runs: Annotated[
        list[str] | None,
        typer.Option("--run", "-r", help="A configuration such as policy=ring,window=512; 2 to 4 of them."),
    ] = None,
    backend: Backend = "ring",
    window: Window = 512,
    sinks: Sinks = 4,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="Tokens of each reply.")] = 2000,
    prompt: Annotated[str, typer.Option(help="What every run is asked.")] = DEFAULT_PROMPT,
    prompt_file: Annotated[Path | None, typer.Option(help="Read the prompt from a file instead.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draws, the same in every run.")] = 0,
    temperature: Annotated[float, typer.Option(help="0 always takes the most likely token.")] = 0.8,
    reference: Annotated[
        Path | None, typer.Option(help="A text to score; default: Python's language reference.")
    ] = None,
    reference_tokens: Annotated[int, typer.Option(min=0, help="How much of it to score; 0 leaves it out.")] = 0,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Run one prompt under several configurations, one after another, and put their memory and speed side by side."""
    path = "" if backend == "echo" else str(model_path(model))
    base = LoadRequest(backend, path, window=window, sinks=sinks)
    configurations = parse_configurations(runs or (), base)
    text = (_read(reference) if reference else reference_text()) if reference_tokens else None
    asked = _read(prompt_file) if prompt_file else prompt
    comparison = Comparison(Experiment(asked, tokens, seed, temperature, text, reference_tokens))
    try:
        _follow(run(comparison, configurations, worker_log_path()), as_json)
    except KeyboardInterrupt:
        comparison.stopped = True
        note("Stopped; what was measured is kept.")
    if as_json:
        for outcome in outcomes(comparison):
            print_json(dataclasses.asdict(outcome))
    show(comparison_report(comparison), output, as_json)


def doctor(
    model: Model = DEFAULT_DEMO,
    backend: Backend = "ring",
    window: Window = 512,
    sinks: Sinks = 4,
    policy: Policy = CachePolicy.RING,
    symptom: Annotated[Symptom | None, typer.Option(help="What is wrong; the walk starts where it shows.")] = None,
    tokens: Annotated[
        int, typer.Option("--tokens", "-n", min=0, help="Of the measured reply; 0 leaves it out.")
    ] = 1600,
    reference: Reference = None,
    reference_tokens: ReferenceTokens = 1600,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Check that a model slides, its cache is bounded, mask and positions are right, speed flat and text sound."""
    path = model_path(model)
    text = (_read(reference) if reference else reference_text()) if reference_tokens else None
    load = LoadRequest(backend, str(path), policy=policy, window=window, sinks=sinks)
    config = ModelFiles.open(path).config()
    verdicts: list[Verdict] = []
    visit = Visit(load, config, symptom, tokens, text, reference_tokens, worker_log_path())
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


def experiment(
    window: Annotated[list[int] | None, typer.Option("--window", "-w", help="Windows to measure; repeatable.")] = None,
    longest: Annotated[int, typer.Option(help="Tokens of the longest text.")] = 32_768,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Show why a ring: one attention layer, random tokens, four ways to keep a window. No model needed."""
    costs: list[StepCost] = []
    windows = tuple(window or cache_experiment.WINDOWS)
    try:
        with progress_bar(as_json) as bar:
            task = bar.add_task("Measuring", total=None)
            for cost in cache_experiment.measure(windows, longest):
                costs.append(cost)
                bar.update(task, description=f"W = {cost.window:,}, {cost.tokens:,} tokens")
                if as_json:
                    print_json(dataclasses.asdict(cost))
    except KeyboardInterrupt:
        note("Stopped; what was measured is kept.")
    show(cache_experiment.report(costs), output, as_json)


def model_path(model: str) -> Path:
    """Return the path of a model by path, demo name or hub id, fetching it if need be; the echo backend needs none."""
    with progress_bar(hidden=False) as bar:
        task = bar.add_task("Looking for the model", total=None)

        def report(progress: LoadProgress) -> None:
            bar.update(task, description=progress.stage, completed=progress.done, total=progress.total)

        return resolve(model, report)


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
        Console(highlight=False).print(verdict_text(verdict), markup=False)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(f"{path} is not a readable text file: {error}.") from error
