"""The benchmark: one command, every contestant on the same prompts, in turn, with spread, versions and hardware.

At each depth all contestants load once and then measure round by round, each round in another order and on another
part of the text, so that none profits from a warm prefix or a quiet minute. Run it with `make bench`; `--quick` is a
rehearsal.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from app.proof import machine
from app.proof.contestants import CONTESTANTS, Sample, Setup, serve
from app.proof.isolated import stream
from app.proof.scoring import reference_text
from backends.errors import RingsideError
from models.folders import cache_folder
from models.model_files import ModelFiles
from models.tokenizer import load_tokenizer

DEPTHS = (512, 4096, 16_384, 32_768)
QUICK_DEPTHS = (64, 256)


@dataclass(frozen=True)
class Row:
    """One sample, or why there is none."""

    contestant: str
    depth: int
    round: int
    sample: Sample | None
    why_not: str = ""


@dataclass
class Benchmark:
    """Everything measured so far, with what it was measured on."""

    model: str
    num_tokens: int
    machine: dict[str, str]
    rows: list[Row] = field(default_factory=list)

    def results(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        num_tokens: written after each prompt.
        limit_s: a contestant whose prefill would take longer, by its last depth, sits that depth out and is listed so.
    """

    gguf: Path
    transformers_folder: Path
    contestants: Sequence[str]
    depths: Sequence[int]
    num_rounds: int = 3
    num_tokens: int = 64
    window: int = 512
    sinks: int = 4
    num_threads: int = 2
    limit_s: float = 900.0


class Runner:
    """One contestant's process."""

    def __init__(self, name: str, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._connection, childs_end = context.Pipe()
        self._process = context.Process(target=serve, args=(childs_end, name, setup), daemon=True)
        self._process.start()
        childs_end.close()

    def answer(self) -> Any:
        """Return the next answer. Raises RingsideError with what went wrong in the process."""
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RingsideError(f"{self.name} ended with exit code {self._process.exitcode}.") from None
        if isinstance(answer, str) and answer != "ready":
            raise RingsideError(f"{self.name}: {answer}")
        return answer

    def sample(self, prompt: Sequence[int], num_tokens: int) -> Sample:
        """Measure one prompt and reply."""
        self._connection.send((list(prompt), num_tokens))
        sample: Sample = self.answer()
        return sample

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._connection.close()


def run(plan: Plan, benchmark: Benchmark) -> Generator[Row, None, None]:
    """Measure into `benchmark`, yielding each row as it comes; closing the iterator ends every process."""
    tokens = text_tokens(plan.gguf)
    for depth in plan.depths:
        setup = Setup(
            gguf=str(plan.gguf),
            transformers_folder=str(plan.transformers_folder),
            window=plan.window,
            sinks=plan.sinks,
            num_threads=plan.num_threads,
            longest_tokens=depth + plan.num_tokens + 8,
        )
        names = []
        for name in plan.contestants:
            expected_s = expected_prefill_s(benchmark.rows, name, depth)
            if expected_s is None or expected_s <= plan.limit_s:
                names.append(name)
            else:
                why_not = f"reading {depth:,} tokens would take about {expected_s / 60:.0f} min"
                yield _noted(benchmark, Row(name, depth, 0, None, why_not))
        yield from _at_depth(plan, benchmark, setup, depth, names, tokens)


def expected_prefill_s(rows: Sequence[Row], name: str, depth: int) -> float | None:
    """Return what reading `depth` tokens would take, in proportion to the last depth measured; None without one."""
    known = [(row.depth, row.sample.first_token_s) for row in rows if row.contestant == name and row.sample]
    if not known:
        return None
    last_depth, seconds = max(known)
    return seconds * depth / last_depth


def text_tokens(gguf: Path) -> list[int]:
    """Return the ids of a long text, the token that begins one first; repeated if it is short."""
    tokenizer = load_tokenizer(ModelFiles.open(gguf))
    text = (reference_text() or "The quick brown fox jumps over the lazy dog. " * 4000)[:400_000]
    begin = [tokenizer.bos_id] if tokenizer.bos_id is not None else []
    return begin + tokenizer.encode(text)


def prompt_of(tokens: Sequence[int], depth: int, turn: int) -> list[int]:
    """Return a prompt of `depth` tokens that shares no prefix with another turn's but the first token."""
    begin, text = tokens[:1], tokens[1:]
    start = turn * 997
    return list(itertools.islice(itertools.chain(begin, itertools.islice(itertools.cycle(text), start, None)), depth))


def _at_depth(
    plan: Plan, benchmark: Benchmark, setup: Setup, depth: int, names: Sequence[str], tokens: Sequence[int]
) -> Generator[Row, None, None]:
    runners: list[Runner] = []
    try:
        for name in names:  # one after the other: loading at once would be the worst case for memory
            runner = Runner(name, setup)
            runners.append(runner)
            try:
                runner.answer()
            except RingsideError as error:
                runners.remove(runner)
                runner.stop()
                yield _noted(benchmark, Row(name, depth, 0, None, str(error)))
        for turn in range(plan.num_rounds + 1):  # turn 0 warms up: code is paged in, kernels are chosen
            prompt = prompt_of(tokens, min(depth, 64) if turn == 0 else depth, turn)
            for runner in runners[turn % max(1, len(runners)) :] + runners[: turn % max(1, len(runners))]:
                row = _row(runner, depth, turn, prompt, 4 if turn == 0 else plan.num_tokens)
                if turn > 0 or row.why_not:
                    yield _noted(benchmark, row)
            for row in [row for row in benchmark.rows if row.depth == depth and row.why_not]:
                for runner in [runner for runner in runners if runner.name == row.contestant]:
                    runners.remove(runner)
                    runner.stop()
    finally:
        for runner in runners:
            runner.stop()


def _row(runner: Runner, depth: int, turn: int, prompt: Sequence[int], num_tokens: int) -> Row:
    try:
        return Row(runner.name, depth, turn, runner.sample(prompt, num_tokens))
    except (RingsideError, OSError) as error:
        return Row(runner.name, depth, turn, None, str(error))


def _noted(benchmark: Benchmark, row: Row) -> Row:
    benchmark.rows.append(row)
    return row


def main(
    model: Annotated[str | None, typer.Option(help="A GGUF file or demo; the sliding-window demo by default.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Results; the figure gets the same name.")] = Path(
        "assets/benchmark.json"
    ),
    only: Annotated[list[str] | None, typer.Option(help="Contestants, by the start of their names.")] = None,
    depth: Annotated[list[int] | None, typer.Option(help="Prompt lengths; repeatable.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each contestant at each depth.")] = 3,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens written after each prompt.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of every contestant.")] = 2,
    limit_s: Annotated[float, typer.Option(help="Longest prefill worth waiting for.")] = 900.0,
    readme: Annotated[Path | None, typer.Option(help="Put the table between its bench markers.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rehearsal: short prompts, one round.")] = False,
) -> None:
    """Benchmark both backends against the libraries used as they come, and write JSON, figure and table."""
    from app.proof import bench_report
    from app.proof.printing import errors_shown, note
    from app.proof.running import model_path

    with errors_shown(as_json=False):
        names = [name for name in CONTESTANTS if not only or any(name.startswith(start) for start in only)]
        gguf = model_path(model)
        folder = cache_folder() / "benchmark" / gguf.stem
        plan = Plan(gguf, folder, names, depth or DEPTHS, rounds, tokens, num_threads=threads, limit_s=limit_s)
        if quick:
            plan = dataclasses.replace(plan, depths=depth or QUICK_DEPTHS, num_rounds=1, num_tokens=min(tokens, 8))
        if any(name.startswith("transformers") for name in names) and not (folder / "config.json").exists():
            note("Converting the weights for transformers, once ...")
            next(stream("app.proof.contestants", "convert_for_transformers", str(gguf), str(folder)))
        benchmark = Benchmark(gguf.name, plan.num_tokens, machine.describe() | {"threads": str(threads)})
        started_s = time.monotonic()
        try:
            for row in run(plan, benchmark):
                note(f"{time.monotonic() - started_s:6.0f} s  {bench_report.line_of(row)}")
        except KeyboardInterrupt:
            note("Stopped; what was measured is kept.")
        bench_report.write(benchmark.results(), output, readme)


def load_results(path: Path) -> dict[str, Any]:
    """Read what `main` wrote."""
    results: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return results


if __name__ == "__main__":
    typer.run(main)
