"""The commands of the proof, as `app.cli` offers them. Each imports what it needs when it is called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from app.proof.verdicts import Symptom
from backends.requests import CachePolicy, KVType

Model = Annotated[str | None, typer.Argument(help="A GGUF file, a Hugging Face folder, a hub id, or a demo's name.")]
Backend = Annotated[str, typer.Option("--backend", "-b", help="ring or llamacpp.")]
Window = Annotated[int, typer.Option("--window", "-w", min=1, help="Tokens a bounded layer sees.")]
Sinks = Annotated[int, typer.Option("--sinks", "-s", min=0, help="First tokens pinned on full-attention layers.")]
Policy = Annotated[CachePolicy, typer.Option("--policy", "-p", help="What is kept of the past.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads.")]
Reference = Annotated[Path | None, typer.Option(help="A text to score; default: Python's language reference.")]
ReferenceTokens = Annotated[int, typer.Option(min=0, help="How much of it to score; 0 leaves it out.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line and nothing else.")]
Svg = Annotated[bool, typer.Option("--svg", help="Draw the figures beside the report, as SVG files.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write the HTML report and its JSON.")]


def register(cli: typer.Typer) -> None:
    """Add the commands of the proof to the command line."""
    for command in (estimate, compare, doctor, experiment):
        cli.command(command.__name__)(command)


def estimate(
    model: Model = None,
    backend: Backend = "ring",
    window: Window = 512,
    sinks: Sinks = 4,
    policy: Policy = CachePolicy.RING,
    kv_type: Annotated[KVType, typer.Option(help="Of the stored keys and values.")] = "auto",
    tokens: Annotated[int | None, typer.Option(help="Length you expect, prompt and reply together.")] = None,
    also: Annotated[list[int] | None, typer.Option(help="Windows of the table; repeatable.")] = None,
    threads: Threads = None,
    check: Annotated[bool, typer.Option("--check", help="Load it too, and put what is measured beside it.")] = False,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Tell what a model takes before loading it, at which windows, and when a ring is the wrong choice."""
    from app.proof import running
    from app.proof.printing import errors_shown

    with errors_shown(as_json):
        load = running.load_request(model, backend, policy, window, sinks, threads)
        running.estimate(replace(load, kv_type=kv_type), tokens, also or (), output, as_json, check)


def compare(
    model: Model = None,
    runs: Annotated[
        list[str] | None,
        typer.Option("--run", "-r", help="A configuration such as policy=ring,window=512; 2 to 4 of them."),
    ] = None,
    backend: Backend = "ring",
    window: Window = 512,
    sinks: Sinks = 4,
    threads: Threads = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="Tokens of each reply.")] = 2000,
    prompt: Annotated[str | None, typer.Option(help="What every run is asked.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="Read the prompt from a file instead.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draws, the same in every run.")] = 0,
    temperature: Annotated[float, typer.Option(help="0 always takes the most likely token.")] = 0.8,
    reference: Reference = None,
    reference_tokens: ReferenceTokens = 0,
    output: Output = None,
    svg: Svg = False,
    as_json: Json = False,
) -> None:
    """Run one prompt under several configurations, one after another, and put their memory and speed side by side."""
    from app.proof import running
    from app.proof.compare import DEFAULT_PROMPT, Experiment
    from app.proof.printing import errors_shown

    with errors_shown(as_json):
        asked = running.read_text(prompt_file) if prompt_file else prompt or DEFAULT_PROMPT
        text = running.reference(reference, reference_tokens)
        fixed = Experiment(asked, tokens, seed, temperature, text, reference_tokens)
        load = running.load_request(model, backend, CachePolicy.RING, window, sinks, threads)
        running.compare(load, runs or (), fixed, output, as_json, svg)


def doctor(
    model: Model = None,
    backend: Backend = "ring",
    window: Window = 512,
    sinks: Sinks = 4,
    policy: Policy = CachePolicy.RING,
    threads: Threads = None,
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
    from app.proof import running
    from app.proof.printing import errors_shown

    with errors_shown(as_json):
        load = running.load_request(model, backend, policy, window, sinks, threads)
        text = running.reference(reference, reference_tokens)
        running.doctor(load, symptom, tokens, text, reference_tokens, output, as_json)


def experiment(
    window: Annotated[list[int] | None, typer.Option("--window", "-w", help="Windows to measure; repeatable.")] = None,
    longest: Annotated[int, typer.Option(help="Tokens of the longest text.")] = 32_768,
    output: Output = None,
    svg: Svg = False,
    as_json: Json = False,
) -> None:
    """Show why a ring: one attention layer, random tokens, four ways to keep a window. No model needed."""
    from app.proof import running
    from app.proof.printing import errors_shown

    with errors_shown(as_json):
        running.experiment(window or (), longest, output, as_json, svg)
