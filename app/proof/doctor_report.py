"""The doctor's verdicts as text and as a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from app.proof.doctor import Visit
from app.proof.report import Report, Table
from app.proof.verdicts import Status, Verdict

_MARKS: dict[Status, str] = {"good": "✓", "bad": "✗", "unsure": "?"}


def verdict_text(verdict: Verdict) -> str:
    """Return verdict, evidence and remedy as lines."""
    lines = [f"{_MARKS[verdict.status]} {verdict.question} {verdict.verdict}"]
    lines += [f"    {sentence}" for sentence in verdict.evidence]
    if verdict.remedy:
        lines.append(f"    → {verdict.remedy}")
    return "\n".join(lines)


def report(visit: Visit, verdicts: Sequence[Verdict]) -> Report:
    """Return what was found so far as a report."""
    load = visit.load
    rows = [
        (each.question, _MARKS[each.status], each.verdict, " ".join(each.evidence), each.remedy) for each in verdicts
    ]
    return Report(
        title=f"The doctor on {load.model}",
        sentences=[f"{load.backend}, {load.policy.value}, W = {load.window:,}, S = {load.sinks}."],
        figures=[],
        tables=[Table("Checks", ("Question", "", "Verdict", "Evidence", "Remedy"), rows)],
        results={
            "load": dataclasses.asdict(load),
            "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts],
        },
    )
