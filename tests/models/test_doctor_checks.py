"""The doctor finds nothing on the real cache, and names every fault planted in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.requests import CachePolicy
from models.config import LayerConfig, ModelConfig, RopeConfig
from models.doctor_checks import examine
from models.doctor_subject import MakeCache
from models.findings import Fault
from models.skeleton import LONGEST_WINDOW, Skeleton
from tests.models import faulty_caches as faulty
from tests.models.tiny_models import tiny_model

ROPE = RopeConfig(theta=10_000.0, dims=32)
CONFIG = ModelConfig(
    architecture="gemma3",
    vocab_size=1000,
    hidden_size=64,
    mlp_size=128,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    layers=(LayerConfig(24, ROPE), LayerConfig(None, ROPE), LayerConfig(24, ROPE)),
    attention_scale=32**-0.5,
)


def faults(config: ModelConfig, make_cache: MakeCache) -> set[Fault]:
    findings = examine(config, CachePolicy.RING, window=24, sinks=4, make_cache=make_cache)
    return {finding.fault for finding in findings if finding.fault}


@pytest.mark.parametrize(
    ("cache", "named"),
    [
        (faulty.AppendsForEver, {"appends for ever", "copies each step"}),  # it appends by copying
        (faulty.KeepsThePrompt, {"keeps the whole prompt"}),
        (faulty.CopiesEachStep, {"copies each step"}),
        (faulty.RollsEachStep, {"copies each step"}),
        (faulty.MaskBySlotIndex, {"mask by slot index"}),
        (faulty.RopeRestartsAtTheWrap, {"RoPE restarts at the wrap"}),
        (faulty.WindowOfOneMore, {"sees beyond the window", "wrong size"}),
        (faulty.RowsShareAPointer, {"rows share a pointer"}),
    ],
    ids=lambda value: " and ".join(sorted(value)) if isinstance(value, set) else "",
)
@pytest.mark.parametrize("layers", [CONFIG.layers[:1], CONFIG.layers], ids=["all slide", "both kinds"])
def test_every_planted_fault_is_named_and_nothing_else(
    cache: MakeCache, named: set[Fault], layers: tuple[LayerConfig, ...]
) -> None:
    assert faults(replace(CONFIG, layers=layers), cache) == named


def test_scores_over_a_wide_window_are_not_taken_for_a_copy_of_a_narrow_one() -> None:
    rope = replace(ROPE, dims=16)
    layers = (LayerConfig(32, rope), LayerConfig(None, rope))
    found = examine(replace(CONFIG, head_dim=16, layers=layers), CachePolicy.RING, window=384, sinks=4)
    assert [finding.fault for finding in found if finding.topic == "bounded"] == [None, None, None]


@pytest.mark.parametrize("policy", list(CachePolicy))
def test_the_real_cache_has_no_fault_under_any_policy(policy: CachePolicy) -> None:
    findings = list(examine(CONFIG, policy, window=24, sinks=4))
    assert [finding for finding in findings if finding.fault] == []
    assert len({finding.probe for finding in findings}) == len(findings)


@pytest.mark.parametrize(
    "family", ["gemma3_text", "gemma2", "gpt_oss", "cohere2", "smollm3", "phi3", "glm", "llama", "ministral3", "olmo2"]
)
def test_every_feature_of_attention_is_probed_right(family: str) -> None:
    """Soft caps, learned sinks, layers without rotary, partial and scaled rotary, norms of queries and keys."""
    findings = list(examine(tiny_model(family).config, CachePolicy.RING, window=8, sinks=2))
    assert [finding for finding in findings if finding.fault] == []
    assert any(finding.probe.startswith("Positions") for finding in findings) or family == "ministral3"


def test_a_skeleton_keeps_heads_and_kinds_and_shrinks_the_rest_in_proportion() -> None:
    wide = replace(CONFIG, layers=(LayerConfig(4096, ROPE), LayerConfig(None, ROPE), LayerConfig(1024, ROPE)))
    skeleton = Skeleton.of(wide, window=2048, sinks=100)
    assert [layer.trained_window for layer in skeleton.config.layers] == [LONGEST_WINDOW, None, LONGEST_WINDOW // 4]
    assert skeleton.window == LONGEST_WINDOW // 2
    assert (skeleton.config.num_heads, skeleton.config.head_dim) == (4, 32)
