"""The settings as Gradio controls: what they say, what they take, and how their values become `ChatSettings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from app.chat_settings import ChatSettings, chat_settings_from, flat_settings
from app.outlook import ModelChoice
from app.sampling_text import logit_bias_lines, parse_logit_bias, read_breakers, spelled_breakers
from app.ui import markup
from app.ui.device_choice import device_words, devices
from app.ui.long_reply_card import long_reply_card, template_card
from app.ui.sampling_card import KEPT_WHERE_EMPTY, sampling_card
from backends.errors import BadRequestError
from backends.registry import BACKENDS
from backends.requests import CachePolicy

_POLICY_LABELS = {
    CachePolicy.RING: "Ring: stays flat",
    CachePolicy.AS_TRAINED: "As trained",
    CachePolicy.FULL: "Full: grows",
}
_WHOLE_NUMBERS = frozenset(
    (
        "window",
        "sinks",
        "max_new_tokens",
        "top_k",
        "repetition_window",
        "seed",
        "num_threads",
        "growing_context_tokens",
        "dry_allowed_length",
        "dry_window",
        "steering_every_tokens",
    )
)


class SettingsForm:
    """Cards of controls. `controls` and `names` are in the same order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.controls: list[Any] = []
        with gr.Column(elem_id="rs-settings"):
            with gr.Column(elem_classes="rs-card"):
                gr.HTML("<h3>Model</h3>")
                self._model_card()
            with gr.Column(elem_classes="rs-card"):
                gr.HTML("<h3>Memory</h3>")
                self._memory_card()
            gr.HTML(
                markup.OUTLOOK, js_on_load=None, apply_default_css=False, padding=False, elem_classes="rs-card-wide"
            )
            with gr.Column(elem_classes="rs-card rs-card-wide"):
                gr.HTML("<h3>Writing</h3>")
                self._writing_card()
            with gr.Accordion(
                "Long replies", open=False, elem_id="rs-long-replies", elem_classes="rs-card rs-card-wide"
            ):
                long_reply_card(self._add)
            with gr.Accordion("Finer settings", open=False, elem_classes="rs-card rs-card-wide"):
                self._finer_card()
            with gr.Accordion(
                "More sampling", open=False, elem_id="rs-more-sampling", elem_classes="rs-card rs-card-wide"
            ):
                sampling_card(self._add)
            with gr.Accordion("Chat template", open=False, elem_id="rs-template", elem_classes="rs-card rs-card-wide"):
                template_card(self._add)

    def shown(self, settings: ChatSettings, models: Sequence[ModelChoice]) -> list[Any]:
        """Return what the controls show for the settings, with these models to choose from."""
        shown = _flat(settings)
        choices = [(choice.label, choice.model) for choice in models]
        shown["model"] = gr.Dropdown(choices=choices, value=settings.load.model)
        offered = devices(settings.load.device)
        shown["device"] = gr.Radio(choices=offered, value=settings.load.device, info=device_words(offered))
        return [shown[name] for name in self.names]

    def settings(self, values: Sequence[Any], base: ChatSettings) -> ChatSettings:
        """Return `base` with what the controls hold.

        Raises:
            BadRequestError: a value is outside what its setting can take.
        """
        table = dict(zip(self.names, values, strict=True))
        if table.pop("pin_system_prompt"):
            table["sinks"] = None
        elif table["sinks"] is None:
            table["sinks"] = 0
        table["steering_notes"] = (table["steering_notes"] or "").split("\n")
        table["stop"] = [line for line in (table["stop"] or "").split("\n") if line]
        table["chat_template"] = table["chat_template"] or None
        table["options"] = _options(table["options"] or "")
        table["dry_breakers"] = read_breakers((table["dry_breakers"] or "").split("\n"))
        for name in (*KEPT_WHERE_EMPTY, "steering_every_tokens"):
            if table[name] is None:
                del table[name]
        for name in _WHOLE_NUMBERS & table.keys():
            table[name] = _whole(name, table[name])
        if table["window"] is None:
            raise BadRequestError("The window is empty.", "Give the number of tokens it holds, 1 or more.")
        if table["growing_context_tokens"] is None:
            table["growing_context_tokens"] = base.load.growing_context_tokens
        table["model"] = (table["model"] or "").strip()
        try:
            table["logit_bias"] = parse_logit_bias((table["logit_bias"] or "").split("\n"))
            return chat_settings_from(table, base)
        except ValueError as error:
            raise BadRequestError(_sentence(str(error))) from error

    def _add(self, name: str, control: Any) -> None:
        control.elem_classes = [*control.elem_classes, f"rs-set-{name}"]
        self.names.append(name)
        self.controls.append(control)

    def _model_card(self) -> None:
        backends = [(_backend_label(name), name) for name in BACKENDS]
        self._add(
            "backend", gr.Radio(backends, label="Backend", info="The engine that runs the model.", elem_id="rs-backend")
        )
        self._add(
            "model",
            gr.Dropdown(
                [],
                label="Model",
                info="One found on this machine, a demo, a path, or a hub id such as owner/name.",
                allow_custom_value=True,
                elem_id="rs-model",
            ),
        )

        self._add(
            "device",
            gr.Radio(devices(), label="Device", info=device_words(devices()), elem_id="rs-device"),
        )
        self._add(
            "precision",
            gr.Dropdown(
                ["auto", "float32", "bfloat16", "float16", "int8"],
                label="Precision",
                info="Of the weights as held in memory.",
            ),
        )

    def _memory_card(self) -> None:
        policies = [(label, policy.value) for policy, label in _POLICY_LABELS.items()]
        self._add(
            "policy",
            gr.Radio(
                policies,
                label="Cache",
                info="A ring overwrites the oldest token: memory and speed stay the same however long the text gets.",
                elem_id="rs-policy",
            ),
        )
        with gr.Row():
            self._add(
                "window",
                gr.Number(
                    label="Window, tokens",
                    info="How far back a token sees.",
                    precision=0,
                    min_width=120,
                    elem_id="rs-window",
                ),
            )
            self._add(
                "sinks",
                gr.Number(
                    label="Sinks, tokens",
                    info="First tokens, kept for ever.",
                    precision=0,
                    min_width=120,
                    elem_id="rs-sinks",
                ),
            )
        self._add(
            "pin_system_prompt",
            gr.Checkbox(label="Keep the whole system prompt", info="Uses it as the sinks, whatever its length."),
        )
        self._add(
            "kv_type",
            gr.Radio(
                ["auto", "int8", "fp8"],
                label="Keys and values",
                info="One byte a number instead of two or four: a smaller cache, a slightly different text.",
                elem_id="rs-kv-type",
            ),
        )

    def _writing_card(self) -> None:
        self._add(
            "system_prompt",
            gr.Textbox(
                label="System prompt",
                info="What the model is told before the chat. Empty for nothing.",
                lines=2,
                max_lines=8,
                elem_id="rs-system-prompt",
            ),
        )
        with gr.Row():
            self._add(
                "max_new_tokens",
                gr.Number(
                    label="Longest reply, tokens",
                    info="Empty writes until you stop it.",
                    precision=0,
                    elem_id="rs-max-new-tokens",
                ),
            )
            self._add(
                "temperature",
                _slider("Temperature", "0 always takes the likeliest token.", 0, 2),
            )
        self._add(
            "keep_writing",
            gr.Checkbox(
                label="Keep writing",
                info="Ignores the model's end of text, so that it goes on until you stop it.",
                elem_id="rs-keep-writing",
            ),
        )

    def _finer_card(self) -> None:
        with gr.Row():
            self._add("top_k", _number("Top-k", "Draw from the k likeliest tokens. Empty for all."))
            self._add("top_p", _slider("Top-p", "Draw from this share of the likelihood. 1 for all.", 0, 1))
            self._add("min_p", _slider("Min-p", "Leave out tokens below this fraction of the likeliest.", 0, 1))
            self._add("seed", _number("Seed", "The same seed writes the same text. Empty for a new one."))
        with gr.Row():
            self._add(
                "repetition_penalty", _slider("Repetition penalty", "Above 1 avoids recent words. 1 is off.", 0.5, 2)
            )
            self._add("repetition_window", _number("Penalty window, tokens", "How far back it looks. Empty for all."))
        with gr.Row():
            self._add("num_threads", _number("CPU threads", "Empty takes the physical cores."))
            self._add(
                "growing_context_tokens", _number("Growing cache, tokens", "Set aside by llama.cpp where it grows.")
            )
        self._add("options", _lines("Backend options", "name=value, one a line. For the echo backend: rate=50."))


def _number(label: str, info: str) -> Any:
    return gr.Number(label=label, info=info, precision=0)


def _slider(label: str, info: str, low: float, high: float) -> Any:
    return gr.Slider(low, high, step=0.01, label=label, info=info, buttons=[])


def _lines(label: str, info: str) -> Any:
    return gr.Textbox(label=label, info=info, lines=2, max_lines=8)


def _flat(settings: ChatSettings) -> dict[str, Any]:
    flat = flat_settings(settings)
    flat["pin_system_prompt"] = settings.load.sinks is None
    flat["stop"] = "\n".join(settings.stop)
    flat["steering_notes"] = "\n".join(settings.steering_notes)
    flat["logit_bias"] = "\n".join(logit_bias_lines(settings.sampling.logit_bias))
    flat["dry_breakers"] = "\n".join(spelled_breakers(settings.sampling.dry_breakers))
    flat["options"] = "\n".join(f"{name}={value}" for name, value in settings.load.options.items())
    return flat


def _backend_label(name: str) -> str:
    entry = BACKENDS[name]
    return f"{entry.title} (not installed)" if entry.missing_libraries() else entry.title


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, equals, value = line.partition("=")
        if not equals:
            raise BadRequestError(f"The backend option {line!r} has no value.", "Write name=value.")
        options[name.strip()] = value.strip()
    return options


def _whole(name: str, value: Any) -> int | None:
    if value is None or value == "":
        return None
    if float(value) != int(value):
        raise BadRequestError(f"{name} of {value} is not a whole number.")
    return int(value)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else text
