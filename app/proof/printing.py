"""Reports on a terminal: tables and sentences to stdout, progress and remarks to stderr, or JSON lines alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from app.proof.picture import draw_svg
from app.proof.report import Report, Table, write
from backends.errors import RingsideError


def show(report: Report, output: Path | None, as_json: bool, svg: bool = False) -> None:
    """Print a report unless JSON was asked for, and write it where asked, its figures as SVG too if wanted."""
    if not as_json:
        console = Console(highlight=False)
        console.print(report.title, style="bold", markup=False)
        for table in report.tables:
            if not table.detail:
                console.print(rich_table(table))
        for sentence in report.sentences:
            console.print(f"• {sentence}", markup=False)
    if output is not None:
        drawn = draw_svg(report.figures, output.with_suffix(".svg")) if svg else []
        for path in (*write(report, output), *drawn):
            note(f"Wrote {path}")


@contextmanager
def errors_shown(as_json: bool) -> Iterator[None]:
    """End with one sentence and exit code 1 where a person can act on what went wrong."""
    try:
        yield
    except (RingsideError, ValueError, OSError) as error:
        if as_json:
            hint = error.hint if isinstance(error, RingsideError) else ""
            print_json({"event": "error", "error": getattr(error, "message", str(error)), "hint": hint})
        else:
            note(f"Error: {error}")
        raise typer.Exit(1) from None


def print_text(text: str) -> None:
    """Print lines as they are."""
    Console(highlight=False).print(text, markup=False)


def note(text: str) -> None:
    """Print a remark beside the results."""
    Console(stderr=True, highlight=False).print(text, markup=False)


def print_json(value: object) -> None:
    """Print one object on a line of its own, at once."""
    print(json.dumps(value), flush=True)


def progress_bar(hidden: bool) -> Progress:
    """Return a progress display on stderr that leaves nothing behind."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden)


def rich_table(table: Table) -> RichTable:
    """Return a table for the terminal, numbers to the right."""
    shown = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if index == 0 else "right")
    for row in table.rows:
        shown.add_row(*row)
    return shown
