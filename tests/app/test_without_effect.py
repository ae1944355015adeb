"""What is said to have no effect has none, and what has none is said."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.chat_settings import ChatSettings, chat_settings_from, flat_settings
from app.server import build_routes
from app.without_effect import RULES, notes_on, without_effect
from backends.requests import LoadRequest, Sampling
from tests.app.conftest import EchoService

PLAIN = ChatSettings(LoadRequest("ring", "x"))
DRAWN = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 3.0]),
        "top_k": st.sampled_from([None, 1, 5]),
        "top_p": st.sampled_from([0.0, 0.6, 1.0]),
        "min_p": st.sampled_from([0.0, 0.2]),
        "typical_p": st.sampled_from([0.4, 1.0]),
        "top_n_sigma": st.sampled_from([None, 0.5]),
        "xtc_probability": st.sampled_from([0.0, 1.0]),
        "xtc_threshold": st.sampled_from([0.05, 0.6]),
        "mirostat_tau": st.sampled_from([None, 1.0]),
        "mirostat_eta": st.sampled_from([0.1, 0.9]),
        "repetition_penalty": st.sampled_from([1.0, 1.5]),
        "presence_penalty": st.sampled_from([0.0, 1.0]),
        "repetition_window": st.sampled_from([None, 3]),
        "dry_multiplier": st.sampled_from([0.0, 2.0]),
        "dry_base": st.sampled_from([1.0, 3.0]),
        "dry_allowed_length": st.sampled_from([1, 3]),
        "dry_window": st.sampled_from([None, 4]),
    }
)


def drawn(sampling: Sampling, logits: Any, numbers: list[float]) -> list[int]:
    sampler = pytest.importorskip("backends.llamacpp.sampling").Sampler(sampling, len(logits), [0, 1, 2, 0, 1])
    tokens = []
    for number in numbers:
        tokens.append(sampler.draw(logits.copy(), number))
        sampler.push(tokens[-1])
    return tokens


@settings(max_examples=150, deadline=None)
@given(one=DRAWN, other=DRAWN, numbers=st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6))
def test_no_setting_said_to_be_without_effect_changes_what_is_drawn(
    one: dict[str, Any], other: dict[str, Any], numbers: list[float]
) -> None:
    idle = without_effect(replace(PLAIN, sampling=Sampling(**one))).keys() & one.keys()
    assume(idle)
    logits = np.random.default_rng(3).normal(0, 2, 12).astype(np.float32)
    for name in idle:
        changed = Sampling(**{**one, name: other[name]})
        if name in without_effect(replace(PLAIN, sampling=changed)):
            assert drawn(changed, logits, numbers) == drawn(Sampling(**one), logits, numbers), name


@pytest.mark.parametrize(
    ("table", "name", "why"),
    [
        ({"temperature": 0}, "xtc_probability", "at temperature 0 the likeliest token always comes"),
        ({"temperature": 0}, "top_p", "at temperature 0 the likeliest token always comes"),
        ({"temperature": 0, "mirostat_tau": 5}, "mirostat_tau", "at temperature 0 the likeliest token always comes"),
        ({"mirostat_tau": 5}, "min_p", "mirostat 2 takes its place"),
        ({}, "mirostat_eta", "mirostat 2 is off"),
        ({"top_k": 1}, "temperature", "a top-k of 1 leaves only the likeliest token"),
        ({"top_p": 0}, "seed", "a top-p of 0 leaves only one token"),
        ({}, "xtc_threshold", "XTC has a probability of 0"),
        ({"xtc_threshold": 0.7}, "xtc_probability", "two tokens are never both above an XTC threshold"),
        ({}, "repetition_window", "repetition, presence and frequency penalty are off"),
        ({}, "dry_window", "DRY has a strength of 0"),
        ({"grammar": "/a/"}, "keep_writing", "the reply ends where its schema or grammar does"),
        ({}, "stop_in_reasoning", "there are no stop phrases"),
        ({}, "steering_every_tokens", "there are no notes on the way"),
        ({"policy": "full"}, "window", "a full cache keeps everything"),
        ({}, "growing_context_tokens", "only llama.cpp sets a growing cache aside"),
    ],
)
def test_each_rule_says_why(table: dict[str, Any], name: str, why: str) -> None:
    assert without_effect(chat_settings_from(table, PLAIN))[name].startswith(f"Without effect: {why}")


def test_settings_that_count_are_not_named() -> None:
    counting = {
        "repetition_penalty": 1.2,
        "dry_multiplier": 0.8,
        "xtc_probability": 0.5,
        "stop": ["x"],
        "steering_notes": ["y"],
        "backend": "llamacpp",
        "policy": "as trained",
    }
    assert set(without_effect(chat_settings_from(counting, PLAIN))) == {"mirostat_eta"}


def test_every_rule_names_settings_there_are() -> None:
    names = {*flat_settings(PLAIN), "pin_system_prompt"}
    assert {name for rule in RULES for name in rule.names} <= names
    assert {each.name for each in fields(Sampling)} <= names


def test_only_what_was_given_is_noted() -> None:
    wanted = chat_settings_from({"temperature": 0, "xtc_probability": 0.5}, PLAIN)
    assert notes_on({"temperature": 0, "xtc_probability": 0.5}, wanted) == [
        "xtc_probability: Without effect: at temperature 0 the likeliest token always comes."
    ]


def test_the_page_is_told(echo_service: EchoService) -> None:
    service = echo_service(rate="max")
    with TestClient(build_routes(service), base_url="http://127.0.0.1:7878") as page:
        assert page.get("/app/outlook").json()["without_effect"] == without_effect(service.settings())


def test_every_setting_named_has_its_control_marked() -> None:
    gr = pytest.importorskip("gradio")
    from app.ui.settings_form import SettingsForm

    with gr.Blocks():
        form = SettingsForm()
    marked = {
        name
        for name, control in zip(form.names, form.controls, strict=True)
        if f"rs-set-{name}" in control.elem_classes
    }
    assert {name for rule in RULES for name in rule.names} <= marked
