"""The settings form: what its controls show becomes the settings, and back."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr
import pytest

from app.chat_settings import ChatSettings
from app.outlook import ModelChoice
from app.ui.settings_form import SettingsForm
from backends.requests import Device, KVType, LoadRequest


@pytest.fixture(scope="module")
def form() -> Iterator[SettingsForm]:
    with gr.Blocks():
        yield SettingsForm()


@pytest.mark.parametrize("kv_type", ["auto", "int8", "fp8"])
def test_the_type_of_keys_and_values_comes_back_from_its_control(form: SettingsForm, kv_type: KVType) -> None:
    settings = ChatSettings(LoadRequest("ring", "model.gguf", kv_type=kv_type))
    shown = dict(zip(form.names, form.shown(settings, [ModelChoice("A model", "model.gguf")]), strict=True)) | {
        "model": "model.gguf",
        "device": "auto",
    }
    assert shown["kv_type"] == kv_type
    assert form.settings(list(shown.values()), ChatSettings(LoadRequest("ring", "model.gguf"))).load.kv_type == kv_type


def test_what_happens_on_the_way_of_a_long_reply_comes_back_from_its_controls(form: SettingsForm) -> None:
    base = ChatSettings(LoadRequest("ring", "model.gguf"))
    shown = dict(zip(form.names, form.shown(base, [ModelChoice("A model", "model.gguf")]), strict=True))
    given = {
        "model": "model.gguf",
        "device": "auto",
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
    kept = {"model": again["model"], "device": again["device"], "steering_notes": "rain\nthe end"}
    assert again | given | kept == again
    emptied = shown | {"model": "model.gguf", "device": "auto", "steering_every_tokens": None}
    assert form.settings(list(emptied.values()), settings).steering_every_tokens == 64


@pytest.mark.parametrize(
    ("has_cuda", "chosen", "offered"),
    [
        (True, "auto", ["auto", "cpu", "cuda"]),
        (False, "auto", ["auto", "cpu"]),
        (False, "cuda", ["auto", "cpu", "cuda"]),  # settings of another machine
    ],
)
def test_cuda_is_offered_where_a_gpu_is_or_where_it_was_chosen(
    has_cuda: bool, chosen: Device, offered: list[str], form: SettingsForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ui.device_choice.has_cuda", lambda: has_cuda)
    settings = ChatSettings(LoadRequest("ring", "model.gguf", device=chosen))
    device = dict(zip(form.names, form.shown(settings, []), strict=True))["device"]
    assert [value for _, value in device.choices] == offered
    assert device.value == chosen
    assert ("no GPU" in device.info) == ("cuda" not in offered)
