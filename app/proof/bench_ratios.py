"""Our engines over their peers, round by round: both sides of a ratio were measured within minutes of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.proof.bench_rounds import Row
from app.proof.contestants import Sample
from app.proof.slopes import median_and_quartiles

OURS = ("Ringside ring", "Ringside llama.cpp")

MEASURES: dict[str, Callable[[Sample], float | None]] = {
    "decode_rate": lambda sample: sample.decode_rate,
    "prefill_rate": lambda sample: sample.prefill_rate,
    "first_token_s": lambda sample: sample.first_token_s,
    "peak_bytes": lambda sample: sample.peak_bytes,
    "final_bytes": lambda sample: sample.final_bytes,
}


@dataclass(frozen=True)
class Ratio:
    """One of ours over a peer at a depth.

    Attributes:
        median, low, high: over the rounds that measured both, quartiles.
    """

    ours: str
    peer: str
    depth: int
    measure: str
    median: float
    low: float
    high: float
    num_rounds: int


def ratios(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return JSON-ready `Ratio`s of all that was measured side by side."""
    samples = {(row.contestant, row.depth, row.run, row.round): row.sample for row in rows if row.sample is not None}
    depths = sorted({row.depth for row in rows})
    peers = [name for name in dict.fromkeys(row.contestant for row in rows) if not name.startswith("Ringside")]
    found = (
        _ratio(samples, ours, peer, depth, measure)
        for ours in OURS
        for peer in peers
        for depth in depths
        for measure in MEASURES
    )
    return [asdict(ratio) for ratio in found if ratio is not None]


def _ratio(
    samples: dict[tuple[str, int, int, int], Sample], ours: str, peer: str, depth: int, measure: str
) -> Ratio | None:
    value = MEASURES[measure]
    quotients = []
    for (name, at, run, turn), mine in samples.items():
        theirs = samples.get((peer, at, run, turn))
        if name != ours or at != depth or theirs is None:
            continue
        above, below = value(mine), value(theirs)
        if above and below:
            quotients.append(above / below)
    if not quotients:
        return None
    return Ratio(ours, peer, depth, measure, *median_and_quartiles(quotients), len(quotients))
