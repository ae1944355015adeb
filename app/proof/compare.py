"""A controlled experiment: the same prompt and seed under two to four configurations, one after another.

Each configuration gets a fresh worker process, so that what one leaves behind cannot be measured on the next.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.proof.configurations import Configuration
from app.proof.curves import (
    SPEED_DEPTHS,
    bytes_slope,
    first_difference,
    median_rate,
    settled_from,
    speed_at,
)
from app.proof.measurement import Measurement, measure
from app.proof.scoring import Losses, score
from app.proof.slopes import Slope
from backends.requests import GenerationRequest, Message, Sampling

DEFAULT_PROMPT = (
    "It was late in the year when the ship came back, and nobody on the quay had expected to see her again."
)


@dataclass(frozen=True)
class Experiment:
    """What is held fixed.

    Attributes:
        prompt: the user's message; a model without chat template continues it.
        num_tokens: of each reply; the end-of-text token is never drawn, so that all are equally long.
        reference: text whose mean loss every configuration is asked for; None leaves that out.
        reference_tokens: how much of it.
    """

    prompt: str = DEFAULT_PROMPT
    num_tokens: int = 2000
    seed: int = 0
    temperature: float = 0.8
    reference: str | None = None
    reference_tokens: int = 1024

    def request(self) -> GenerationRequest:
        """Return the one reply asked for."""
        return GenerationRequest(
            messages=(Message("user", self.prompt),),
            sampling=Sampling(temperature=self.temperature, seed=self.seed),
            max_new_tokens=self.num_tokens,
            ignore_end=True,
        )


@dataclass
class Comparison:
    """Everything measured so far; grows while `run` is iterated and stays when that is stopped.

    Attributes:
        losses: by label, where a reference was given and the backend can score it.
        stopped: the person ended it early.
    """

    experiment: Experiment
    measurements: list[Measurement] = field(default_factory=list)
    losses: dict[str, Losses] = field(default_factory=dict)
    stopped: bool = False


@dataclass(frozen=True)
class Progress:
    """Where a comparison is: configuration `index` of `count`, doing `stage`; `total` 0 where unknown."""

    index: int
    count: int
    label: str
    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class Outcome:
    """The figures of one run, all None where it did not get that far.

    Attributes:
        process_slope, kv_slope: bytes per generated token once the bounded layers are full.
        full_slope: bytes per token that a cache which keeps everything would grow by.
        speeds: tokens per second at `SPEED_DEPTHS`.
        first_difference: token of the reply at which it parts from the first run's; `same_tokens` compared.
        loss: mean over the reference text, in nats a token.
    """

    label: str
    num_tokens: int
    load_s: float | None
    first_token_s: float | None
    peak_process_bytes: int
    final_process_bytes: int | None
    final_kv_bytes: int | None
    process_slope: Slope | None
    kv_slope: Slope | None
    full_slope: float | None
    median_rate: float | None
    speeds: dict[int, float | None]
    first_difference: int | None
    same_tokens: int
    loss: float | None
    error: str


def run(
    comparison: Comparison, configurations: Sequence[Configuration], log_path: Path | None = None
) -> Generator[Progress, None, None]:
    """Measure one configuration after the other into `comparison`, yielding where it is.

    Closing the iterator ends the worker of the moment; what was measured stays in `comparison`. A configuration that
    fails keeps its error and the next one is tried.
    """
    experiment, count = comparison.experiment, len(configurations)
    for index, configuration in enumerate(configurations, 1):
        for position, measurement in enumerate(
            measure(configuration.label, configuration.load, experiment.request(), log_path)
        ):
            if position == 0:
                comparison.measurements.append(measurement)
            yield _progress(index, count, measurement, experiment.num_tokens)
        if experiment.reference and not comparison.measurements[-1].error:
            losses = comparison.losses[configuration.label] = Losses()
            for _ in score(configuration.load, experiment.reference, experiment.reference_tokens, losses):
                done, total = len(losses.values), experiment.reference_tokens
                yield Progress(index, count, configuration.label, "Scoring the reference", done, total)


def outcomes(comparison: Comparison) -> list[Outcome]:
    """Return the figures of every run, in order."""
    first = comparison.measurements[0] if comparison.measurements else None
    return [_outcome(each, first or each, comparison.losses) for each in comparison.measurements]


def _outcome(measurement: Measurement, first: Measurement, losses: dict[str, Losses]) -> Outcome:
    settled = settled_from(measurement)
    last = measurement.points[-1] if measurement.points else None
    scored = losses.get(measurement.label)
    return Outcome(
        label=measurement.label,
        num_tokens=len(measurement.token_ids),
        load_s=measurement.load_s,
        first_token_s=measurement.first_token_s,
        peak_process_bytes=measurement.peak_process_bytes,
        final_process_bytes=last.process_bytes if last else None,
        final_kv_bytes=last.kv_held_bytes if last else None,
        process_slope=bytes_slope(measurement, "process_bytes", settled),
        kv_slope=bytes_slope(measurement, "kv_held_bytes", settled),
        full_slope=measurement.model.kv_bytes_per_token_full if measurement.model else None,
        median_rate=median_rate(measurement),
        speeds={depth: speed_at(measurement, depth) for depth in SPEED_DEPTHS},
        first_difference=first_difference(first.token_ids, measurement.token_ids),
        same_tokens=min(len(first.token_ids), len(measurement.token_ids)),
        loss=scored.mean if scored else None,
        error=measurement.error,
    )


def _progress(index: int, count: int, measurement: Measurement, num_tokens: int) -> Progress:
    if measurement.load_s is None:
        load = measurement.load_progress
        done, total = (load.done, load.total or 0) if load else (0, 0)
        return Progress(index, count, measurement.label, load.stage if load else "Starting", done, total)
    if not measurement.token_ids:
        done, total = measurement.prompt_done_tokens, measurement.num_prompt_tokens
        return Progress(index, count, measurement.label, "Reading the prompt", done, total)
    return Progress(index, count, measurement.label, "Writing", len(measurement.token_ids), num_tokens)
