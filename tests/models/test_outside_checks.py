"""Probes from outside, on a toy engine of one layer: sound, it passes them all; broken, each fault is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from models.outside_checks import Logits, divergence, examine_outside

WINDOW, SINKS, NUM_TOKENS = 12, 2, 50
_TABLE_NV = np.random.default_rng(0).normal(size=(NUM_TOKENS, NUM_TOKENS))


@dataclass
class Toy:
    """Predicts from the visible tokens, weighted by their distance; positions move when it makes room.

    Attributes:
        fault: what is broken.
        moves: whether it is a bounded cache that drops a block of its oldest tokens (a full layer in llama.cpp), and
            not a sliding layer.
    """

    fault: str = ""
    moves: bool = False
    window_tokens: int = WINDOW
    capacity_tokens: int = WINDOW
    is_bounded: bool = True
    bytes_per_token: int = 100
    tolerance_nats: float = 1e-6
    fed: list[int] = field(default_factory=list)
    cells: list[tuple[int, int]] = field(default_factory=list)  # token, position
    next_position: int = 0

    @property
    def reach_tokens(self) -> int | None:
        return None if self.moves else WINDOW

    def start(self) -> None:
        self.fed, self.cells, self.next_position = [], [], 0

    def feed(self, tokens: Sequence[int]) -> Logits:
        for token in tokens:
            self._make_room()
            self.fed.append(token)
            self.cells.append((token, self.next_position))
            self.next_position += 1
            if self.fault == "chunks" and len(tokens) > 1 and len(self.cells) > WINDOW // 2:
                del self.cells[0]  # overwritten before the rest of the chunk has seen it
        return self._logits([(token, self.next_position - 1 - position) for token, position in self.cells])

    def _make_room(self) -> None:
        if len(self.cells) < WINDOW or self.fault == "appends":
            return
        if not self.moves:
            if self.fault != "window":
                self.cells = self.cells[-WINDOW + 1 :]
            return
        dropped = (WINDOW - SINKS) // 2
        del self.cells[SINKS : SINKS + dropped]
        moved = [(token, position - dropped) for token, position in self.cells[SINKS:]]
        self.cells[SINKS:] = self.cells[SINKS:] if self.fault == "positions" else moved
        self.next_position -= 0 if self.fault == "positions" else dropped

    def _logits(self, seen: Sequence[tuple[int, int]]) -> Logits:
        weights = [5.0 * np.cos(0.7 * distance) for _, distance in seen]
        found: Logits = sum(
            (weight * _TABLE_NV[token] for (token, _), weight in zip(seen, weights, strict=True)), np.zeros(NUM_TOKENS)
        )
        return found

    def take_up(self, tokens: Sequence[int]) -> tuple[int, Logits]:
        shared = next((at for at, (a, b) in enumerate(zip(self.fed, tokens, strict=False)) if a != b), len(self.fed))
        back = len(self.fed) - shared
        if back and (len(self.fed) > WINDOW and self.fault != "reuse"):
            self.start()
            return 0, self.feed(tokens)
        self.cells = self.cells[: len(self.cells) - back]
        self.fed, self.next_position = self.fed[:shared], self.next_position - back
        return shared, self.feed(tokens[shared:])

    def kept(self) -> Sequence[int] | None:
        return [token for token, _ in self.cells] if self.moves else None

    def uncached(self, tokens: Sequence[int]) -> Logits | None:
        if self.moves:
            return None
        seen = list(tokens)[-WINDOW:]
        return self._logits([(token, len(seen) - 1 - at) for at, token in enumerate(seen)])

    def sizes(self) -> tuple[int, int]:
        held = len(self.cells) * self.bytes_per_token
        return held, max(held, WINDOW * self.bytes_per_token)


def _written(num_tokens: int) -> list[int]:
    """Return a text that the toy itself draws, so that it predicts it well where it sees rightly."""
    toy, generator, text = Toy(moves=True), np.random.default_rng(1), [0]
    while len(text) < num_tokens:
        logits = toy.feed(text[-1:])
        odds = np.exp(logits - logits.max())
        text.append(int(generator.choice(NUM_TOKENS, p=odds / odds.sum())))
    return text


TEXT = _written(500)


@pytest.mark.parametrize("moves", [False, True])
def test_a_sound_engine_passes_every_probe(moves: bool) -> None:
    findings = list(examine_outside(Toy(moves=moves), TEXT))
    probes = ["Bytes by length", "Chunks and single steps", "Taking up a text"]
    probes += ["Positions after making room"] if moves else ["Tokens seen", "With and without a cache"]
    assert [(finding.probe, finding.fault) for finding in findings] == [(probe, None) for probe in probes]


@pytest.mark.parametrize(
    ("fault", "moves", "named"),
    [
        ("appends", False, "appends for ever"),
        ("appends", False, "sees beyond the window"),
        ("chunks", False, "chunks differ from steps"),
        ("reuse", False, "reuse differs from a fresh start"),
        ("window", False, "differs from no cache"),
        ("positions", True, "wrong positions"),
    ],
)
def test_a_broken_engine_is_told_by_its_fault(fault: str, moves: bool, named: str) -> None:
    assert named in {finding.fault for finding in examine_outside(Toy(fault, moves), TEXT)}


def test_equal_distributions_diverge_by_nothing_and_others_by_their_difference() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.25]))
    assert divergence(logits, logits + 7.0) == pytest.approx(0.0, abs=1e-12)
    assert divergence(logits, np.log(np.array([0.25, 0.5, 0.25]))) == pytest.approx(0.25 * np.log(2))
