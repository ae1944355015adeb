"""The doctor: walks the checks a person stuck on this would walk, on their own model, and answers each.

Each check gathers its evidence when its turn comes, in fresh processes: probes of the cache on a skeleton of the model,
one measured reply, one profiled step, and the losses of a reference text. Judging is in `app.proof.judging`.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.proof import judging, machine, scoring
from app.proof.compare import DEFAULT_PROMPT, Experiment
from app.proof.inspection import drawing_s, seconds_by_part
from app.proof.isolated import stream
from app.proof.measurement import Measurement, measure
from app.proof.pace import CONTROL_TOKENS, looks_slower
from app.proof.scoring import Losses, score
from app.proof.verdicts import ORDERS, QUESTIONS, Check, Symptom, Verdict
from backends.registry import BACKENDS
from backends.requests import CachePolicy, LoadRequest
from models.config import ModelConfig
from models.findings import Finding
from models.sizing import resolved_sinks

_EXPLAINING_SINKS = 4
_PROBED_CHARS = 40_000


@dataclass(frozen=True)
class Visit:
    """What the doctor looks at, and how long.

    Attributes:
        load: the configuration in question.
        config: of its model; None where the backend runs an architecture that is not known here.
        symptom: where to start; None goes through in order.
        num_tokens: of the measured reply; 0 leaves it out.
        reference: text to score; None leaves that out.
        reference_tokens: how much of it.
    """

    load: LoadRequest
    config: ModelConfig | None
    symptom: Symptom | None = None
    num_tokens: int = 0
    reference: str | None = None
    reference_tokens: int = 0
    log_path: Path | None = None

    @property
    def is_looked_into(self) -> bool:
        """Whether our own decoder runs the model, so that its cache can be looked into."""
        return self.load.backend == "ring" and self.config is not None

    @property
    def settled(self) -> int:
        """Position from which every bounded layer is full."""
        return self.load.window + resolved_sinks(self.load)


@dataclass(frozen=True)
class Step:
    """What the doctor is doing; `total` 0 where unknown."""

    check: Check
    stage: str
    done: int = 0
    total: int = 0


@dataclass
class Evidence:
    """What was gathered so far; each part once, and only when a check asks for it."""

    findings: list[Finding] = field(default_factory=list)
    run: Measurement | None = None
    control: Measurement | None = None
    parts: dict[str, float] | None = None
    bandwidth: float | None = None
    drawing_s: float | None = None
    losses: dict[str, Losses] = field(default_factory=dict)


def walk(visit: Visit) -> Generator[Step | Verdict, None, None]:
    """Yield steps and, check by check, verdicts; closing it ends whatever runs.

    Raises:
        RingsideError: the model does not load, or a library is missing.
    """
    evidence = Evidence()
    for check in ORDERS[visit.symptom]:
        yield Step(check, QUESTIONS[check])
        match check:
            case "slides":
                if visit.config is None:
                    yield from _run(visit, evidence, check)
                yield judging.judge_sliding(visit.config, visit.load, evidence.run)
            case "bounded":
                yield from _probe(visit, evidence, check)
                yield from _run(visit, evidence, check)
                yield judging.judge_bounds(visit.load, evidence.findings, evidence.run, _settled(visit, evidence))
            case "exact":
                yield from _probe(visit, evidence, check)
                yield judging.judge_exactness(evidence.findings, visit.is_looked_into)
            case "flat":
                yield from _run(visit, evidence, check)
                yield from _profile(visit, evidence, check)
                settled = _settled(visit, evidence)
                yield judging.judge_speed(
                    evidence.run, settled, evidence.parts, evidence.bandwidth, evidence.control, evidence.drawing_s
                )
            case "sound":
                yield from _run(visit, evidence, check)
                yield from _score(visit, evidence, check)
                losses = {name: losses.values for name, losses in evidence.losses.items()}
                written = evidence.run.token_ids if evidence.run else []
                yield judging.judge_text(visit.load, losses, _settled(visit, evidence), written)


def _probe(visit: Visit, evidence: Evidence, check: Check) -> Generator[Step, None, None]:
    """Probe our decoder's cache from inside, on a skeleton of the model; any other one from outside, on the model."""
    if evidence.findings:
        return
    load = visit.load
    if visit.is_looked_into:
        findings = stream(
            "models.doctor_checks", "examine", visit.config, load.policy, load.window, resolved_sinks(load)
        )
    else:
        text = (visit.reference or scoring.reference_text() or DEFAULT_PROMPT)[:_PROBED_CHARS]
        findings = stream(f"{BACKENDS[load.backend].module}.examination", "examine", load, text)
    yield Step(check, "Probing the cache")
    for finding in findings:
        evidence.findings.append(finding)
        yield Step(check, f"Probing the cache: {finding.probe}")


def _run(visit: Visit, evidence: Evidence, check: Check) -> Generator[Step, None, None]:
    """Write one reply and measure it; where it slowed down, at once a control, while the machine is as it was."""
    if evidence.run is not None or not visit.num_tokens:
        return
    for evidence.run in _written(visit, "run", visit.num_tokens):
        yield Step(check, "Writing", len(evidence.run.token_ids), visit.num_tokens)
    if evidence.run is not None and looks_slower(evidence.run, _settled(visit, evidence)):
        yield from _control(visit, evidence, check)


def _control(visit: Visit, evidence: Evidence, check: Check) -> Generator[Step, None, None]:
    """Write to just past a full window in a fresh worker, to see whether the machine is what slowed down."""
    num_tokens = _settled(visit, evidence) + CONTROL_TOKENS
    for evidence.control in _written(visit, "control", num_tokens):
        done = len(evidence.control.token_ids)
        yield Step(check, "It slowed down: was it the machine? A short reply to compare", done, num_tokens)


def _written(visit: Visit, label: str, num_tokens: int) -> Generator[Measurement, None, None]:
    """Write so many tokens in a fresh worker, measuring."""
    return measure(label, visit.load, Experiment(DEFAULT_PROMPT, num_tokens).request(), visit.log_path)


def _profile(visit: Visit, evidence: Evidence, check: Check) -> Generator[Step, None, None]:
    """See where the time of a token goes, and how fast memory is."""
    if evidence.parts is not None or evidence.run is None or evidence.run.error:
        return
    yield Step(check, "Measuring memory bandwidth")
    evidence.bandwidth = machine.read_bandwidth(visit.load.num_threads or _num_cores())
    yield Step(check, "Looking into a step")
    evidence.parts = seconds_by_part(visit.load, _settled(visit, evidence))
    evidence.drawing_s = drawing_s(evidence.run)


def _score(visit: Visit, evidence: Evidence, check: Check) -> Generator[Step, None, None]:
    """Score the reference as configured and with everything kept; where that differs, also what could explain it."""
    if not visit.reference or not visit.reference_tokens:
        return
    yield from _score_one(visit, evidence, check, "configured", visit.load)
    yield from _score_one(visit, evidence, check, "full", replace(visit.load, policy=CachePolicy.FULL))
    names = {"configured", "full"}
    losses = {name: evidence.losses[name].values for name in names}
    if visit.load.policy is not CachePolicy.RING or not judging.is_worse(losses, _settled(visit, evidence)):
        return
    if resolved_sinks(visit.load) < _EXPLAINING_SINKS:
        with_sinks = replace(visit.load, sinks=_EXPLAINING_SINKS)
        yield from _score_one(visit, evidence, check, "with sinks", with_sinks)
    as_trained = replace(visit.load, policy=CachePolicy.AS_TRAINED)
    yield from _score_one(visit, evidence, check, "as trained", as_trained)


def _score_one(
    visit: Visit, evidence: Evidence, check: Check, name: str, load: LoadRequest
) -> Generator[Step, None, None]:
    losses = evidence.losses[name] = Losses()
    growing = max(load.growing_context_tokens, visit.reference_tokens + 1)
    load = replace(load, growing_context_tokens=growing)
    for _ in score(load, visit.reference or "", visit.reference_tokens, losses):
        yield Step(check, f"Scoring the reference, {name}", len(losses.values), visit.reference_tokens)


def _settled(visit: Visit, evidence: Evidence) -> int:
    """Return the position from which every bounded layer is full, as the backend reported it if it has run."""
    reported = 0 if evidence.run is None else evidence.run.capacity_tokens
    return max(visit.settled, reported)


def _num_cores() -> int:
    return os.cpu_count() or 1
