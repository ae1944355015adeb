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
