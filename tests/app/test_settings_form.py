"""The settings form: what its controls show becomes the settings, and back."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr
import pytest

from app.chat_settings import ChatSettings
from app.outlook import ModelChoice
from app.ui.settings_form import SettingsForm
from backends.requests import KVType, LoadRequest


@pytest.fixture(scope="module")
def form() -> Iterator[SettingsForm]:
    with gr.Blocks():
        yield SettingsForm()


@pytest.mark.parametrize("kv_type", ["auto", "int8", "fp8"])
def test_the_type_of_keys_and_values_comes_back_from_its_control(form: SettingsForm, kv_type: KVType) -> None:
    settings = ChatSettings(LoadRequest("ring", "model.gguf", kv_type=kv_type))
    shown = dict(zip(form.names, form.shown(settings, [ModelChoice("A model", "model.gguf")]), strict=True)) | {
        "model": "model.gguf"
    }
    assert shown["kv_type"] == kv_type
    assert form.settings(list(shown.values()), ChatSettings(LoadRequest("ring", "model.gguf"))).load.kv_type == kv_type


def test_what_happens_on_the_way_of_a_long_reply_comes_back_from_its_controls(form: SettingsForm) -> None:
    base = ChatSettings(LoadRequest("ring", "model.gguf"))
    shown = dict(zip(form.names, form.shown(base, [ModelChoice("A model", "model.gguf")]), strict=True))
    given = {
        "model": "model.gguf",
        "max_minutes": 1.5,
        "on_loop": "stop",
        "steering_notes": "rain\n\nthe end",
        "steering_every_tokens": 64,
        "stop": "THE END\nFin.",
        "chat_template": "tool_use",
    }
    settings = form.settings(list((shown | given).values()), base)
    assert (settings.max_minutes, settings.on_loop, settings.stop) == (1.5, "stop", ("THE END", "Fin."))
    assert (settings.steering_notes, settings.steering_every_tokens) == (("rain", "the end"), 64)
    assert settings.load.chat_template == "tool_use"
    again = dict(zip(form.names, form.shown(settings, []), strict=True))
    assert again | given | {"model": again["model"], "steering_notes": "rain\nthe end"} == again
    emptied = shown | {"model": "model.gguf", "steering_every_tokens": None}
    assert form.settings(list(emptied.values()), settings).steering_every_tokens == 64
