"""How well a model predicts a long text, by depth, under each policy: `python -m app.proof.nll_by_depth MODEL TEXT`.

"as trained" is the reference. "ring" approximates full layers and must stay close at any depth, the closer the wider
its window. Under "full" every layer keeps everything and sliding layers attend within a band: it must equal the
reference, costs most by far, and so comes last and may be cut short. The text is fed once a policy and ring window,
each in a process of its own, through the code that generates; what was measured is written as it comes.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, cycle
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, cast, get_args

import typer
from typing_extensions import assert_never

from app.proof import machine
from app.proof.picture import draw_svg
from app.proof.printing import errors_shown, note
from app.proof.report import Figure, Report, Table, axes, line, write
from app.proof.running import load_request, read_text
from app.proof.scoring import Losses, score
from app.proof.slopes import Slope, slope_of
from backends.requests import CachePolicy, LoadRequest, Precision

_REFERENCE_COLOUR, _BANDED_COLOUR = "#2563eb", "#9ca3af"
_RING_COLOURS = ("#ea580c", "#16a34a", "#9333ea", "#0891b2")
_DEFAULT_OUTPUT = Path("nll_by_depth.html")
_SETTLED_AT_TOKENS = 4000  # drift is looked for from here on
_NOTE_EVERY_TOKENS = 2000


@dataclass(frozen=True)
class Case:
    """One way to feed the text."""

    policy: CachePolicy
    window: int

    @property
    def name(self) -> str:
        match self.policy:
            case CachePolicy.FULL:
                return "full, banded"
            case CachePolicy.AS_TRAINED:
                return "as trained"
            case CachePolicy.RING:
                return f"ring, W = {self.window:,}"
            case _:
                assert_never(self.policy)


@dataclass
class DepthRun:
    """Losses of one text in several cases.

    Attributes:
        load: model and sinks; its policy and window are not read.
        windows: of the rings; "as trained" and "full" take the widest.
        text_name, text_sha256: of the file.
        num_tokens: asked for.
        losses: nats, case -> token by token.
        seconds: case -> time of feeding, loading included.
    """

    load: LoadRequest
    windows: tuple[int, ...]
    text_name: str
    text_sha256: str
    num_tokens: int
    losses: dict[Case, Losses] = field(default_factory=dict)
    seconds: dict[Case, float] = field(default_factory=dict)

    @property
    def cases(self) -> tuple[Case, ...]:
        """All of them, the reference first."""
        rings = (Case(CachePolicy.RING, window) for window in sorted(self.windows))
        return (self.reference, *rings, self.banded)

    @property
    def reference(self) -> Case:
        return Case(CachePolicy.AS_TRAINED, max(self.windows))

    @property
    def banded(self) -> Case:
        return Case(CachePolicy.FULL, max(self.windows))

    @property
    def measured(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case in self.losses)

    @property
    def stretch_tokens(self) -> int:
        """Tokens averaged into one point: about sixty points in all."""
        return max(1, round(self.num_tokens / 60 / 100)) * 100

    def by_depth(self, case: Case) -> list[tuple[int, float]]:
        return self.losses[case].by_depth(self.stretch_tokens)

    def above_reference(self, case: Case) -> list[tuple[int, float]]:
        """Return (end of the stretch, mean loss beyond the reference's)."""
        pairs = zip(self.by_depth(case), self.by_depth(self.reference), strict=False)
        return [(end, mine - reference) for (end, mine), (_, reference) in pairs]


def measure(run: DepthRun, text: str) -> Generator[None, None, None]:
    """Score the text in each case, the reference first, yielding after each token."""
    for case in run.cases:
        losses = run.losses[case] = Losses()
        start = time.perf_counter()
        for _ in score(replace(run.load, policy=case.policy, window=case.window), text, run.num_tokens, losses):
            yield
        run.seconds[case] = time.perf_counter() - start


def drift(run: DepthRun, case: Case) -> Slope | None:
    """Return how the loss beyond the reference's changes per token, from 4,000 tokens on."""
    settled = [(end, above) for end, above in run.above_reference(case) if end > _SETTLED_AT_TOKENS]
    return slope_of([float(end) for end, _ in settled], [above for _, above in settled])


def report(run: DepthRun) -> Report:
    """Return figures, a table and the numbers; of the policies measured so far."""
    return Report(
        title="Negative log-likelihood by depth",
        sentences=list(_sentences(run)),
        figures=_figures(run),
        tables=[_table(run)],
        results=_results(run),
    )


def _sentences(run: DepthRun) -> Iterator[str]:
    yield (
        f"{Path(run.load.model).name}, {run.text_name}: {run.num_tokens:,} tokens, {run.load.sinks} sinks, "
        f"{run.load.precision}."
    )
    for case in run.measured[1:]:
        if case == run.banded:
            difference = _largest_difference(run, case)
            if difference is not None:
                num_tokens = len(run.losses[case].values)
                yield f"“{case.name}” differs by {difference:.0e} nat at most, over {num_tokens:,} tokens."
            continue
        above = run.above_reference(case)
        if not above:
            continue
        end, most = max(above, key=lambda point: point[1])
        slope = drift(run, case)
        drifts = "" if slope is None else f"; drift from 4,000 tokens on {_per_10k(slope)}"
        yield (
            f"“{case.name}” is {_signed(fmean(value for _, value in above))} nat off “as trained”, at worst "
            f"{_signed(most)} over the {run.stretch_tokens:,} tokens before {end:,}{drifts}."
        )


def _signed(nats: float) -> str:
    return f"{round(nats, 4) + 0.0:+.4f}"  # no minus before a zero


def _per_10k(slope: Slope) -> str:
    value, low, high = (_signed(number * 10_000) for number in (slope.value, slope.low, slope.high))
    return f"{value} nat per 10,000 tokens (95%: {low} to {high})"


def _figures(run: DepthRun) -> list[Figure]:
    absolute = [_trace(run, case, run.by_depth(case)) for case in run.measured]
    above = [_trace(run, case, run.above_reference(case)) for case in run.measured[1:]]
    layout = axes("tokens read", "nats per token")
    layout["yaxis"].pop("rangemode")
    caption = f"Mean over {run.stretch_tokens:,} tokens; {run.text_name}, {Path(run.load.model).name}."
    difference = axes("tokens read", "nats per token above as trained")
    difference["yaxis"]["rangemode"] = "normal"
    return [
        Figure("Loss by depth", absolute, layout, caption),
        Figure("Loss above that of “as trained”", above, difference, caption),
    ]


def _trace(run: DepthRun, case: Case, points: Sequence[tuple[int, float]]) -> dict[str, Any]:
    colours = dict(zip(run.cases, chain([_REFERENCE_COLOUR], cycle(_RING_COLOURS)), strict=False))
    colour, dash = (_BANDED_COLOUR, "dot") if case == run.banded else (colours[case], "solid")
    return line(case.name, [end for end, _ in points], [loss for _, loss in points], colour, dash)


def _table(run: DepthRun) -> Table:
    rows = [_row(run, case) for case in run.measured]
    columns = ("Policy", "Mean, nats", "Worst stretch above as trained", "Drift from 4,000 tokens on")
    return Table("Loss by policy", columns, rows)


def _row(run: DepthRun, case: Case) -> tuple[str, ...]:
    above = [value for _, value in run.above_reference(case)]
    mean, slope = run.losses[case].mean, drift(run, case)
    return (
        case.name,
        "" if mean is None else f"{mean:.4f}",
        _signed(max(above)) if above else "",
        "" if slope is None or case == run.reference else _per_10k(slope),
    )


def _results(run: DepthRun) -> dict[str, Any]:
    return {
        "model": Path(run.load.model).name,
        "text": run.text_name,
        "text_sha256": run.text_sha256,
        "num_tokens": run.num_tokens,
        "sinks": run.load.sinks,
        "precision": run.load.precision,
        "stretch_tokens": run.stretch_tokens,
        "machine": machine.describe(),
        "cases": [_case_results(run, case) for case in run.measured],
    }


def _case_results(run: DepthRun, case: Case) -> Mapping[str, Any]:
    slope = drift(run, case)
    return {
        "policy": case.policy.value,
        "window": case.window,
        "num_tokens": len(run.losses[case].values),
        "mean_nats": run.losses[case].mean,
        "by_depth": [[end, round(loss, 6)] for end, loss in run.by_depth(case)],
        "largest_token_difference_nats": _largest_difference(run, case),
        "drift_nats_per_token": None if slope is None else [slope.value, slope.low, slope.high],
        "seconds": run.seconds.get(case),
    }


def _largest_difference(run: DepthRun, case: Case) -> float | None:
    """Return by how much any token's loss differs from the reference's, in nats; None before there is one."""
    pairs = zip(run.losses[case].values, run.losses[run.reference].values, strict=False)
    return max((abs(mine - other) for mine, other in pairs), default=None)


def main(
    model: Annotated[str, typer.Argument(help="A GGUF file, a Hugging Face folder, a hub id, or a demo's name.")],
    text: Annotated[Path, typer.Argument(help="A UTF-8 text file.")],
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="How many of its tokens to feed.")] = 8000,
    window: Annotated[list[int] | None, typer.Option("--window", "-w", min=1, help="Of a ring; repeat it.")] = None,
    sinks: Annotated[int, typer.Option("--sinks", "-s", min=0)] = 4,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, int8 or auto.")] = "float32",
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML; its JSON lies beside it.")] = _DEFAULT_OUTPUT,
    svg: Annotated[Path | None, typer.Option(help="Draw the figures there too; takes Playwright and Chromium.")] = None,
) -> None:
    """Feed a text under every policy and ring window; write its loss by depth as JSON, HTML and SVG."""
    with errors_shown(as_json=False):
        content = read_text(text)
        windows = tuple(window or (512,))
        load = load_request(model, "ring", CachePolicy.FULL, max(windows), sinks, threads)
        sha256 = hashlib.sha256(content.encode()).hexdigest()
        run = DepthRun(replace(load, precision=_precision(precision)), windows, text.name, sha256, tokens)
        _follow(run, content, output)
        found = report(run)
        for path in (*write(found, output), *(draw_svg(found.figures, svg) if svg is not None else ())):
            note(f"Wrote {path}")
        for sentence in found.sentences:
            print(sentence)


def _follow(run: DepthRun, content: str, output: Path) -> None:
    """Measure to the end, or until Ctrl-C: what was measured by then is reported all the same."""
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(measure(run, content)) as steps:
        for count, _ in enumerate(steps, start=1):
            if count % _NOTE_EVERY_TOKENS == 0:
                note(f"{count:,} of {len(run.cases) * run.num_tokens:,} tokens")
                write(report(run), output)


def _precision(name: str) -> Precision:
    if name not in get_args(Precision):
        raise ValueError(f"precision {name!r} is none of {', '.join(get_args(Precision))}")
    return cast(Precision, name)


if __name__ == "__main__":
    typer.run(main)
