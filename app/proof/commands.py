"""The commands of the proof: they print what the other modules here compute."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from app.proof import estimate_report, machine
from app.proof import experiment as cache_experiment
from app.proof.compare import DEFAULT_PROMPT, Comparison, Experiment, Progress, outcomes, run
from app.proof.compare_report import report as comparison_report
from app.proof.configurations import parse_configurations
from app.proof.estimate import Surroundings, outlook
from app.proof.printing import note, print_json, progress_bar, show
from app.proof.scoring import reference_text
from app.settings import worker_log_path
from backends.errors import BadRequestError
from backends.requests import CachePolicy, LoadRequest
from models.chat_template import ChatTemplate
from models.demo import DEFAULT_DEMO, DEMOS
from models.folders import data_folder
from models.model_files import ModelFiles
from models.step_cost import StepCost

Model = Annotated[str, typer.Argument(help="A GGUF file, a Hugging Face folder, or a demo model's name.")]
Backend = Annotated[str, typer.Option("--backend", "-b", help="ring or llamacpp.")]
Window = Annotated[int, typer.Option("--window", "-w", min=1, help="Tokens a bounded layer sees.")]
Sinks = Annotated[int, typer.Option("--sinks", "-s", min=0, help="First tokens pinned on full-attention layers.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line and nothing else.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write the HTML report and its JSON.")]


def register(cli: typer.Typer) -> None:
    """Add the commands of the proof to the command line."""
    cli.command("estimate")(estimate)
    cli.command("compare")(compare)
    cli.command("experiment")(experiment)


def estimate(
    model: Model = DEFAULT_DEMO,
    backend: Backend = "ring",
    window: Window = 512,
    sinks: Sinks = 4,
    policy: Annotated[CachePolicy, typer.Option("--policy", "-p", help="What is kept of the past.")] = CachePolicy.RING,
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
    base = LoadRequest(backend, str(model_path(model)), window=window, sinks=sinks)
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
    """Return the path of a demo model that is here, or the path as given."""
    demo = DEMOS.get(model)
    if demo is None:
        return Path(model)
    if not demo.is_here(data_folder()):
        raise BadRequestError(f"The demo model {model} is not on this machine yet.", "Run 'ringside chat' once.")
    return demo.path(data_folder())


def _follow(steps: Generator[Progress, None, None], as_json: bool) -> None:
    """Show where a comparison is; with JSON, say nothing. Ctrl-C ends the worker of the moment."""
    with closing(steps), progress_bar(as_json) as bar:
        task = bar.add_task("Starting", total=None)
        for step in steps:
            description = f"{step.index}/{step.count} {step.label}: {step.stage}"
            bar.update(task, description=description, completed=step.done, total=step.total or None)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequestError(f"{path} is not a readable text file: {error}.") from error
