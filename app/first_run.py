"""The first start: fetch the demo model in the terminal, with a bar, before the page asks for it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from backends.errors import RingsideError
from backends.events import LoadProgress
from models.demo import DEMOS, ensure_demo


def fetch_demo(model: str, data_folder: Path) -> None:
    """Fetch `model` if it names a demo that is not here yet; a failure is told, and the page opens all the same.

    Text goes to stderr: stdout belongs to the address, which scripts read.
    """
    demo = DEMOS.get(model)
    if demo is None or demo.is_here(data_folder):
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console) as progress:
            ensure_demo(model, data_folder, _Bars(progress))
    except RingsideError as error:
        console.print(f"{error} The page opens without it.", markup=False)


class _Bars:
    """One bar for each stage."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task_of_stage: dict[str, TaskID] = {}

    def __call__(self, step: LoadProgress) -> None:
        if step.stage not in self._task_of_stage:
            self._task_of_stage[step.stage] = self._progress.add_task(step.stage, total=step.total)
        self._progress.update(self._task_of_stage[step.stage], completed=step.done)
