"""The cost of samplers: every setting is really drawn with, on a real file's logits."""

from __future__ import annotations

from pathlib import Path

from models.sampler_cost import SETTINGS, measure
from tests.backends.tiny_gguf import VOCAB_SIZE, write_tiny_gguf


def test_every_setting_is_measured_with_its_spread(tmp_path: Path) -> None:
    gguf = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_window=32)
    costs = list(measure(str(gguf), "All work and no play. " * 200, num_threads=1, num_rounds=3))
    assert [cost.name for cost in costs] == list(SETTINGS)
    assert all(0 < cost.low_s <= cost.median_s <= cost.high_s for cost in costs)
    assert {cost.vocab_size for cost in costs} == {VOCAB_SIZE}
    assert len({cost.step_s for cost in costs}) == 1
