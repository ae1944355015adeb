"""The benchmark: one command, every contestant on the same prompts, in turn, with spread, versions and hardware.

Run it with `make bench`; `--quick` is a rehearsal. What is measured is on disk at once, and `--add` puts a later run's
figures beside those of an earlier one on the same machine with the same versions.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from app.proof import machine
from app.proof.bench_ratios import ratios
from app.proof.bench_rounds import SHORT_TEXT, Plan, Row, run
from app.proof.contestants import CONTESTANTS, Sample
from app.proof.isolated import stream
from app.proof.scoring import reference_text
from models.folders import cache_folder

DEPTHS = (512, 4096, 16_384, 32_768)
QUICK_DEPTHS = (64, 256)
PARTS = ("engines", "page", "samplers")


@dataclass
class Benchmark:
    """Everything measured so far, with what it was measured on.

    Attributes:
        page: what `app.proof.page_cost` measured, a list of rounds.
        samplers: what `models.sampler_cost` measured.
        run: number of the run that adds to it now.
    """

    model: str
    num_tokens: int
    machine: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    page: list[dict[str, Any]] = field(default_factory=list)
    samplers: list[dict[str, Any]] = field(default_factory=list)
    run: int = 1

    def results(self) -> dict[str, Any]:
        """Return JSON-ready values, ratios included."""
        return dataclasses.asdict(self) | {"ratios": ratios(self.rows)}

    def take_over(self, earlier: Mapping[str, Any]) -> None:
        """Begin with what an earlier run measured.

        Raises:
            ValueError: that was of another model, or on other hardware or versions.
        """
        for name, now, then in (
            ("model", self.model, earlier["model"]),
            ("tokens after each prompt", self.num_tokens, earlier["num_tokens"]),
            *((name, value, earlier["machine"].get(name)) for name, value in self.machine.items()),
        ):
            if now != then:
                raise ValueError(f"these results cannot be put together: {name} was {then} and is {now} now")
        self.rows = [_row_from(values) for values in earlier["rows"]]
        self.page, self.samplers = list(earlier["page"]), list(earlier["samplers"])
        self.run = earlier["run"] + 1


def _row_from(values: Mapping[str, Any]) -> Row:
    sample = values["sample"]
    return Row(**{**values, "sample": None if sample is None else Sample(**sample)})


def _measure(plan: Plan, benchmark: Benchmark, parts: Sequence[str], keep: Callable[[], None]) -> None:
    """Measure the parts, saying and keeping each figure as it comes."""
    from app.proof import bench_report
    from app.proof.page_cost import PageCost, page_rounds
    from app.proof.printing import note

    started_s = time.monotonic()

    def said(line: str) -> None:
        note(f"{time.monotonic() - started_s:6.0f} s  {line}")
        keep()

    if "engines" in parts:
        for row in run(plan, benchmark.rows):
            benchmark.rows.append(dataclasses.replace(row, run=benchmark.run))
            said(bench_report.line_of(row))
    if "page" in parts:
        cost: PageCost
        for cost in page_rounds(plan.gguf, plan.num_page_threads, plan.num_page_tokens, plan.num_rounds):
            benchmark.page.append(dataclasses.asdict(cost))
            said(cost.sentence)
    if "samplers" in parts:
        benchmark.samplers.clear()
        text = reference_text() or SHORT_TEXT * 400
        for each in stream("models.sampler_cost", "measure", str(plan.gguf), text, plan.num_threads):
            benchmark.samplers.append(dataclasses.asdict(each))
        said(f"{len(benchmark.samplers)} ways of drawing a token")


def main(
    model: Annotated[str | None, typer.Option(help="A GGUF file or demo; the sliding-window demo by default.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Results; the figure gets the same name.")] = Path(
        "assets/benchmark.json"
    ),
    parts: Annotated[str, typer.Option(help="What to measure, of: engines, page, samplers.")] = ",".join(PARTS),
    only: Annotated[list[str] | None, typer.Option(help="Contestants, by how their names start.")] = None,
    depths: Annotated[str | None, typer.Option(help="Prompt lengths: 512,4096.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each contestant at each depth.")] = 3,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens written after each prompt.")] = 64,
    page_tokens: Annotated[int, typer.Option(min=64, help="Tokens of each reply in the page.")] = 1500,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of every contestant.")] = 1,
    page_threads: Annotated[int, typer.Option(min=1, help="CPU threads of the model beside page and browser.")] = 1,
    limit_s: Annotated[float, typer.Option(help="Seconds that one prompt and its reply may take.")] = 600.0,
    add: Annotated[bool, typer.Option("--add", help="Keep what the output file holds, and add to it.")] = False,
    readme: Annotated[Path | None, typer.Option(help="Put the tables between its bench markers.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rehearsal: short prompts, one round.")] = False,
) -> None:
    """Benchmark both backends against the libraries used as they come, and write JSON, figure and tables."""
    from app.proof import bench_report
    from app.proof.printing import errors_shown, note
    from app.proof.running import model_path

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: what was started is ended as well
    with errors_shown(as_json=False):
        names = [name for name in CONTESTANTS if not only or any(name.startswith(start) for start in only)]
        gguf = model_path(model)
        folder = cache_folder() / "benchmark" / gguf.stem
        plan = Plan(
            gguf,
            folder,
            names,
            DEPTHS,
            rounds,
            tokens,
            page_tokens,
            num_threads=threads,
            num_page_threads=page_threads,
            limit_s=limit_s,
        )
        if quick:
            plan = dataclasses.replace(plan, depths=QUICK_DEPTHS, num_rounds=1, num_tokens=8, num_page_tokens=128)
        if depths is not None:
            plan = dataclasses.replace(plan, depths=[int(depth) for depth in depths.split(",")])
        described = machine.describe() | {"threads": str(threads)}
        benchmark = Benchmark(gguf.name, plan.num_tokens, described)
        if add and output.exists():
            benchmark.take_over(load_results(output))
        wanted = parts.split(",")
        if "engines" in wanted:
            _convert(plan)
        try:
            _measure(plan, benchmark, wanted, lambda: bench_report.write_json(benchmark.results(), output))
        except KeyboardInterrupt:
            note("Stopped; what was measured is kept.")
        bench_report.write(benchmark.results(), output, readme)


def _convert(plan: Plan) -> None:
    """Give transformers the weights in its own form, once."""
    from app.proof.printing import note

    wanted = any(name.startswith("transformers") for name in plan.contestants)
    if wanted and not (plan.transformers_folder / "config.json").exists():
        note("Converting the weights for transformers, once ...")
        arguments = (str(plan.gguf), str(plan.transformers_folder))
        next(stream("app.proof.contestants", "convert_for_transformers", *arguments))


def load_results(path: Path) -> dict[str, Any]:
    """Read what `main` wrote."""
    results: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return results


if __name__ == "__main__":
    typer.run(main)
