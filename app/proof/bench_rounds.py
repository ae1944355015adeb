"""The rounds of the benchmark: every contestant in a process of its own, all of them in turn on the same prompts.

At each depth all contestants load once and then measure round by round, each round in another order and on another
part of the text, so that none profits from a warm prefix or a quiet minute.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.proof.contestants import Sample, Setup, serve
from app.proof.scoring import reference_text
from backends.errors import RingsideError
from models.model_files import ModelFiles
from models.tokenizer import load_tokenizer

SHORT_TEXT = "The quick brown fox jumps over the lazy dog. "  # where no real text is at hand


@dataclass(frozen=True)
class Row:
    """One sample, or why there is none.

    Attributes:
        run: which run of the benchmark it is from, where several were put together.
    """

    contestant: str
    depth: int
    round: int
    sample: Sample | None
    why_not: str = ""
    run: int = 1


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        num_tokens: written after each prompt.
        num_page_threads: of the model while page and browser need processors as well.
        limit_s: a contestant that takes longer for one prompt and reply, or would by its last depth, sits the rest of
            that depth out and is listed as over the limit.
    """

    gguf: Path
    transformers_folder: Path
    contestants: Sequence[str]
    depths: Sequence[int]
    num_rounds: int = 3
    num_tokens: int = 64
    num_page_tokens: int = 1500
    window: int = 512
    sinks: int = 4
    num_threads: int = 1
    num_page_threads: int = 1
    limit_s: float = 600.0


class Runner:
    """One contestant's process."""

    def __init__(self, name: str, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._connection, childs_end = context.Pipe()
        self._process = context.Process(target=serve, args=(childs_end, name, setup), daemon=True)
        self._process.start()
        childs_end.close()

    def answer(self, limit_s: float) -> Any:
        """Return the next answer. Raises RingsideError if it takes too long, or with what went wrong in the process."""
        try:
            if not self._connection.poll(limit_s):
                raise RingsideError(over(limit_s))
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RingsideError(f"{self.name} ended with exit code {self._process.exitcode}.") from None
        if isinstance(answer, str) and answer != "ready":
            raise RingsideError(f"{self.name}: {answer}")
        return answer

    def sample(self, prompt: Sequence[int], num_tokens: int, limit_s: float) -> Sample:
        """Measure one prompt and reply."""
        self._connection.send((list(prompt), num_tokens))
        sample: Sample = self.answer(limit_s)
        return sample

    def stop(self) -> None:
        """End the process; one that is deep in a library has a few seconds to notice."""
        self._process.terminate()
        self._process.join(15)
        self._process.kill()
        self._process.join()
        self._connection.close()


def over(limit_s: float) -> str:
    """Say that a case took longer than it may."""
    return f"over {limit_s / 60:.0f} min"


def run(plan: Plan, earlier: Sequence[Row] = ()) -> Generator[Row, None, None]:
    """Measure, yielding each row as it comes; closing the iterator ends every process.

    Args:
        earlier: rows known before, which tell how long a prompt may take.
    """
    rows = list(earlier)
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
            if _would_be_over(rows, name, depth, plan.limit_s):
                yield Row(name, depth, 0, None, over(plan.limit_s))
            else:
                names.append(name)
        with closing(_at_depth(plan, setup, depth, names, tokens)) as measured:
            for row in measured:
                rows.append(row)
                yield row


def expected_prefill_s(rows: Sequence[Row], name: str, depth: int) -> float | None:
    """Return what reading `depth` tokens would take, in proportion to the last depth measured; None without one.

    That is the least it can take: attention only makes the later tokens dearer.
    """
    known = [(row.depth, row.sample.first_token_s) for row in rows if row.contestant == name and row.sample]
    if not known:
        return None
    last_depth, seconds = max(known)
    return seconds * depth / last_depth


def _would_be_over(rows: Sequence[Row], name: str, depth: int, limit_s: float) -> bool:
    was_over = any(row.contestant == name and row.depth < depth and row.why_not == over(limit_s) for row in rows)
    return was_over or (expected_prefill_s(rows, name, depth) or 0.0) > limit_s


def text_tokens(gguf: Path) -> list[int]:
    """Return the ids of a long text, the token that begins one first; repeated if it is short."""
    tokenizer = load_tokenizer(ModelFiles.open(gguf))
    text = (reference_text() or SHORT_TEXT * 4000)[:400_000]
    begin = [tokenizer.bos_id] if tokenizer.bos_id is not None else []
    return begin + tokenizer.encode(text)


def prompt_of(tokens: Sequence[int], depth: int, turn: int) -> list[int]:
    """Return a prompt of `depth` tokens that shares no prefix with another turn's but the first token."""
    begin, text = tokens[:1], tokens[1:]
    start = turn * 997
    return list(itertools.islice(itertools.chain(begin, itertools.islice(itertools.cycle(text), start, None)), depth))


def _at_depth(
    plan: Plan, setup: Setup, depth: int, names: Sequence[str], tokens: Sequence[int]
) -> Generator[Row, None, None]:
    runners: list[Runner] = []
    try:
        for name in names:  # one after the other: loading at once would be the worst case for memory
            runner = Runner(name, setup)
            runners.append(runner)
            try:
                runner.answer(plan.limit_s)
            except RingsideError as error:
                runners.remove(runner)
                runner.stop()
                yield Row(name, depth, 0, None, str(error))
        for turn in range(plan.num_rounds + 1):  # turn 0 warms up: code is paged in, kernels are chosen
            prompt = prompt_of(tokens, min(depth, 64) if turn == 0 else depth, turn)
            for runner in runners[turn % max(1, len(runners)) :] + runners[: turn % max(1, len(runners))]:
                row = _row(runner, depth, turn, prompt, 4 if turn == 0 else plan.num_tokens, plan.limit_s)
                if turn > 0 or row.why_not:
                    yield row
                if row.why_not:
                    runners.remove(runner)
                    runner.stop()
    finally:
        for runner in runners:
            runner.stop()


def _row(runner: Runner, depth: int, turn: int, prompt: Sequence[int], num_tokens: int, limit_s: float) -> Row:
    try:
        return Row(runner.name, depth, turn, runner.sample(prompt, num_tokens, limit_s))
    except (RingsideError, OSError) as error:
        return Row(runner.name, depth, turn, None, str(error))
