"""Texts many times longer than the window: scored again they get the log-probabilities they were written with, and at
far positions they are what the literal rule in float64 gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from backends.draws import uniform
from backends.requests import CachePolicy, Sampling
from backends.ring.scoring import token_losses
from models.ring_cache import KVCache
from models.text_model import TextCache, TextModel
from models.token_step import TokenStep
from tests.models.family_checks import loaded_stock_model
from tests.models.reference_attention import reference_logits
from tests.models.test_decoder import logits, new_cache
from tests.models.tiny_models import FAMILIES, WINDOW, random_ids, tiny_model

RING, AS_TRAINED, FULL = CachePolicy.RING, CachePolicy.AS_TRAINED, CachePolicy.FULL
PROMPT = random_ids(5)[0].tolist()
NUM_WRITTEN = 8 * WINDOW


def write(model: TextModel, cache: TextCache) -> tuple[list[int], list[float]]:
    """Draw a text token by token, as the backend does; return it, prompt included, and the loss of each drawn token."""
    step = TokenStep(model, cache, Sampling(temperature=3.0, top_k=None, top_p=1.0))
    text, losses = list(PROMPT), []
    with torch.inference_mode():
        model(torch.tensor([text[:-1]]), cache, logits="none")
    step.begin(text)
    for index in range(NUM_WRITTEN):
        text.append(step.feed(text[-1], uniform(7, index)))
        found = step.logits()
        assert found is not None
        losses.append(-float(found.log_softmax(-1)[0, text[-1]]))
    return text, losses


def scored(model: TextModel, cache: TextCache, text: list[int]) -> torch.Tensor:
    """Losses of the written part, fed in chunks that are no multiple of the window."""
    return torch.tensor(list(token_losses(model, cache, text, lambda: False))[len(PROMPT) - 1 :])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("policy", "sinks"), [(RING, 3), (RING, 0), (AS_TRAINED, 0)])
def test_a_text_scored_again_has_the_log_probabilities_it_was_written_with(
    family: str, policy: CachePolicy, sinks: int
) -> None:
    tiny = tiny_model(family)
    text, losses = write(tiny.decoder, new_cache(tiny, policy, sinks=sinks))
    again = scored(tiny.decoder, new_cache(tiny, policy, sinks=sinks), text)
    assert len(again) == NUM_WRITTEN
    assert (again - torch.tensor(losses)).abs().max() < 1e-4
    assert len(set(text[len(PROMPT) :])) > 4  # a text that says something, not one token again and again


@pytest.mark.parametrize("family", ["cwm", "phimoe"])
def test_the_same_holds_for_stock_models(family: str) -> None:
    model = loaded_stock_model(family)
    text, losses = write(model, model.new_cache())
    assert (scored(model, model.new_cache(), text) - torch.tensor(losses)).abs().max() < 1e-4


def test_another_policy_scores_the_text_otherwise() -> None:
    tiny = tiny_model("gemma3_text")
    text, losses = write(tiny.decoder, new_cache(tiny, RING, sinks=3))
    for other in ({"policy": RING, "sinks": 0}, {"policy": AS_TRAINED}, {"policy": RING, "sinks": 3, "window": 7}):
        cache: KVCache = new_cache(tiny, **other)
        assert (scored(tiny.decoder, cache, text) - torch.tensor(losses)).abs().max() > 0.05, other


@pytest.mark.parametrize("position", [257, 4_095, 100_000, 1_000_000, 20_000_000])
@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "cohere2", "phi3", "glm4", "gpt_oss"])
def test_far_positions_are_what_the_literal_rule_gives_in_float64(family: str, position: int) -> None:
    tiny, ids = tiny_model(family).in_float64(), random_ids(4 * WINDOW)
    arguments: dict[str, Any] = {"policy": RING, "sinks": 2}
    expected = reference_logits(tiny.decoder, ids, new_cache(tiny, **arguments))
    actual = logits(tiny, ids, [13] + [1] * 19, new_cache(tiny, first_position=position, **arguments))
    assert (actual - expected).abs().max() < 1e-6
