"""How well a model predicts a long text, by depth, under each policy: `python -m app.proof.nll_by_depth MODEL TEXT`.

Under "full" every layer keeps everything and sliding layers attend within their band: the reference. "as trained" must
equal it; "ring" approximates full layers and must stay close, at any depth. The text is fed once a policy, each in a
process of its own, through the code that generates; what was measured is written after each.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, cast, get_args

import typer

from app.proof import machine
from app.proof.picture import draw_svg
from app.proof.printing import errors_shown, note
from app.proof.report import Figure, Report, Table, axes, line, write
from app.proof.running import load_request, read_text
from app.proof.scoring import Losses, score
from app.proof.slopes import Slope, slope_of
from backends.requests import CachePolicy, LoadRequest, Precision

_ORDER = (CachePolicy.FULL, CachePolicy.AS_TRAINED, CachePolicy.RING)
_COLOURS = {CachePolicy.FULL: "#9ca3af", CachePolicy.AS_TRAINED: "#2563eb", CachePolicy.RING: "#ea580c"}
_NAMES = {CachePolicy.FULL: "full, banded (reference)"}
_DEFAULT_OUTPUT = Path("nll_by_depth.html")
_SETTLED_AT_TOKENS = 4000  # drift is looked for from here on
_NOTE_EVERY_TOKENS = 2000


@dataclass
class DepthRun:
    """Losses of one text under several policies.

    Attributes:
        load: model, window and sinks; its policy is not read.
        text_name, text_sha256: of the file.
        num_tokens: asked for.
        losses: nats, policy -> token by token.
        seconds: policy -> time of feeding, loading included.
    """

    load: LoadRequest
    text_name: str
    text_sha256: str
    num_tokens: int
    losses: dict[CachePolicy, Losses] = field(default_factory=dict)
    seconds: dict[CachePolicy, float] = field(default_factory=dict)

    @property
    def stretch_tokens(self) -> int:
        """Tokens averaged into one point: about sixty points in all."""
        return max(1, round(self.num_tokens / 60 / 100)) * 100

    def by_depth(self, policy: CachePolicy) -> list[tuple[int, float]]:
        return self.losses[policy].by_depth(self.stretch_tokens)

    def above_reference(self, policy: CachePolicy) -> list[tuple[int, float]]:
        """Return (end of the stretch, mean loss beyond the reference's)."""
        pairs = zip(self.by_depth(policy), self.by_depth(CachePolicy.FULL), strict=False)
        return [(end, mine - reference) for (end, mine), (_, reference) in pairs]


def measure(run: DepthRun, text: str) -> Generator[None, None, None]:
    """Score the text under each policy, the reference first, yielding after each token."""
    for policy in _ORDER:
        losses = run.losses[policy] = Losses()
        start = time.perf_counter()
        for _ in score(replace(run.load, policy=policy), text, run.num_tokens, losses):
            yield
        run.seconds[policy] = time.perf_counter() - start


def drift(run: DepthRun, policy: CachePolicy) -> Slope | None:
    """Return how the loss beyond the reference's changes per token, from 4,000 tokens on."""
    settled = [(end, above) for end, above in run.above_reference(policy) if end > _SETTLED_AT_TOKENS]
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
    load = run.load
    yield (
        f"{Path(load.model).name}, {run.text_name}: {run.num_tokens:,} tokens, window {load.window:,}, "
        f"{load.sinks} sinks, {load.precision}."
    )
    for policy in (CachePolicy.AS_TRAINED, CachePolicy.RING):
        above = run.above_reference(policy) if policy in run.losses else []
        if not above:
            continue
        end, most = max(above, key=lambda point: point[1])
        slope = drift(run, policy)
        drifts = "" if slope is None else f"; drift from 4,000 tokens on {_per_10k(slope)}"
        yield (
            f"“{policy.value}” is {_signed(fmean(value for _, value in above))} nat off the reference, at worst "
            f"{_signed(most)} over the {run.stretch_tokens:,} tokens before {end:,}{drifts}."
        )


def _signed(nats: float) -> str:
    return f"{round(nats, 4) + 0.0:+.4f}"  # no minus before a zero


def _per_10k(slope: Slope) -> str:
    value, low, high = (_signed(number * 10_000) for number in (slope.value, slope.low, slope.high))
    return f"{value} nat per 10,000 tokens (95%: {low} to {high})"


def _figures(run: DepthRun) -> list[Figure]:
    measured = [policy for policy in _ORDER if policy in run.losses]
    absolute = [_trace(policy, run.by_depth(policy)) for policy in measured]
    above = [_trace(policy, run.above_reference(policy)) for policy in measured if policy is not CachePolicy.FULL]
    layout = axes("tokens read", "nats per token")
    layout["yaxis"].pop("rangemode")
    caption = f"Mean over {run.stretch_tokens:,} tokens; {run.text_name}, {Path(run.load.model).name}."
    difference = axes("tokens read", "nats per token above the reference")
    difference["yaxis"]["rangemode"] = "normal"
    return [
        Figure("Loss by depth", absolute, layout, caption),
        Figure("Loss above that of a cache that keeps everything", above, difference, caption),
    ]


def _trace(policy: CachePolicy, points: Sequence[tuple[int, float]]) -> dict[str, Any]:
    name = _NAMES.get(policy, policy.value)
    dash = "dot" if policy is CachePolicy.FULL else "solid"
    return line(name, [end for end, _ in points], [loss for _, loss in points], _COLOURS[policy], dash)


def _table(run: DepthRun) -> Table:
    rows = []
    for policy in (policy for policy in _ORDER if policy in run.losses):
        above = [value for _, value in run.above_reference(policy)]
        mean, slope = run.losses[policy].mean, drift(run, policy)
        rows.append(
            (
                _NAMES.get(policy, policy.value),
                "" if mean is None else f"{mean:.4f}",
                _signed(max(above)) if above else "",
                "" if slope is None or policy is CachePolicy.FULL else _per_10k(slope),
            )
        )
    columns = ("Policy", "Mean, nats", "Worst stretch above the reference", "Drift from 4,000 tokens on")
    return Table("Loss by policy", columns, rows)


def _results(run: DepthRun) -> dict[str, Any]:
    return {
        "model": Path(run.load.model).name,
        "text": run.text_name,
        "text_sha256": run.text_sha256,
        "num_tokens": run.num_tokens,
        "window": run.load.window,
        "sinks": run.load.sinks,
        "precision": run.load.precision,
        "stretch_tokens": run.stretch_tokens,
        "machine": machine.describe(),
        "policies": {policy.value: _policy_results(run, policy) for policy in run.losses},
    }


def _policy_results(run: DepthRun, policy: CachePolicy) -> Mapping[str, Any]:
    losses, reference = run.losses[policy], run.losses[CachePolicy.FULL]
    pairs = zip(losses.values, reference.values, strict=False)
    slope = drift(run, policy)
    return {
        "mean_nats": losses.mean,
        "by_depth": [[end, round(loss, 6)] for end, loss in run.by_depth(policy)],
        "largest_token_difference_nats": max((abs(mine - other) for mine, other in pairs), default=None),
        "drift_nats_per_token": None if slope is None else [slope.value, slope.low, slope.high],
        "seconds": run.seconds.get(policy),
    }


def main(
    model: Annotated[str, typer.Argument(help="A GGUF file, a Hugging Face folder, a hub id, or a demo's name.")],
    text: Annotated[Path, typer.Argument(help="A UTF-8 text file.")],
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="How many of its tokens to feed.")] = 8000,
    window: Annotated[int, typer.Option("--window", "-w", min=1)] = 512,
    sinks: Annotated[int, typer.Option("--sinks", "-s", min=0)] = 4,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, int8 or auto.")] = "float32",
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML; its JSON lies beside it.")] = _DEFAULT_OUTPUT,
    svg: Annotated[Path | None, typer.Option(help="Draw the figures there too; takes Playwright and Chromium.")] = None,
) -> None:
    """Feed a text under every policy; write its loss by depth as JSON, HTML and SVG."""
    with errors_shown(as_json=False):
        content = read_text(text)
        load = load_request(model, "ring", CachePolicy.FULL, window, sinks, threads)
        sha256 = hashlib.sha256(content.encode()).hexdigest()
        run = DepthRun(replace(load, precision=_precision(precision)), text.name, sha256, tokens)
        _follow(run, content, output)
        found = report(run)
        for path in (*write(found, output), *(draw_svg(found.figures, svg) if svg is not None else ())):
            note(f"Wrote {path}")
        for sentence in found.sentences:
            print(sentence)


def _follow(run: DepthRun, content: str, output: Path) -> None:
    for count, _ in enumerate(measure(run, content), start=1):
        if count % _NOTE_EVERY_TOKENS == 0:
            note(f"{count:,} of {len(_ORDER) * run.num_tokens:,} tokens")
            write(report(run), output)


def _precision(name: str) -> Precision:
    if name not in get_args(Precision):
        raise ValueError(f"precision {name!r} is none of {', '.join(get_args(Precision))}")
    return cast(Precision, name)


if __name__ == "__main__":
    typer.run(main)
