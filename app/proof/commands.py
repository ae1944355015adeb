"""The commands `estimate`, `compare`, `doctor`, `experiment`: they print what the other modules here compute."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as RichTable

from app.proof import experiment as cache_experiment
from app.proof.report import Report, Table, write
from models.step_cost import StepCost

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line and nothing else.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write the HTML report and its JSON.")]

console = Console()
progress_console = Console(stderr=True)


def register(cli: typer.Typer) -> None:
    """Add the commands of the proof to the command line."""
    cli.command("experiment")(experiment)


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
        with Progress(console=progress_console, transient=True, disable=as_json) as progress:
            task = progress.add_task("Measuring", total=None)
            for cost in cache_experiment.measure(windows, longest):
                costs.append(cost)
                progress.update(task, description=f"W = {cost.window:,}, {cost.tokens:,} tokens")
                if as_json:
                    print(json.dumps(dataclasses.asdict(cost)), flush=True)
    except KeyboardInterrupt:
        progress_console.print("Stopped; what was measured is kept.")
    show(cache_experiment.report(costs), output, as_json)


def show(report: Report, output: Path | None, as_json: bool) -> None:
    """Print a report and write it where asked."""
    if not as_json:
        console.print(f"[bold]{report.title}[/bold]")
        for table in (table for table in report.tables if not table.detail):
            console.print(rich_table(table))
        for sentence in report.sentences:
            console.print(f"- {sentence}", highlight=False)
    if output is not None:
        for path in write(report, output):
            progress_console.print(f"Wrote {path}", highlight=False)


def rich_table(table: Table) -> RichTable:
    """Return a table for the terminal, numbers to the right."""
    shown = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if index == 0 else "right")
    for row in table.rows:
        shown.add_row(*row)
    return shown
