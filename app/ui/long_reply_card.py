"""The controls of what happens on the way of a long reply, and of the template that makes a prompt of a chat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

_ON_LOOP = [("Say so", "notice"), ("Stop", "stop"), ("Nothing", "ignore")]


def long_reply_card(add: Callable[[str, Any], None]) -> None:
    """Make the controls and hand each over by the name of its setting."""
    with gr.Row():
        add("max_minutes", gr.Number(label="Longest time, minutes", info="Empty writes until you stop it."))
        add(
            "on_loop",
            gr.Radio(
                _ON_LOOP,
                label="If it goes round in circles",
                info="The same passage over and over; tables and code do not count.",
                elem_id="rs-on-loop",
            ),
        )
    with gr.Row():
        add(
            "steering_notes",
            _lines(
                "Notes on the way",
                "The model reads one every so often. One is repeated; several, one a line, are an outline.",
                "rs-steering-notes",
            ),
        )
        add("stop", _lines("Stop phrases", "One a line. The reply ends before any of them.", "rs-stop-phrases"))
    with gr.Row():
        add(
            "stop_in_reasoning",
            gr.Checkbox(
                label="Stop phrases also inside the reasoning",
                info="Otherwise they wait until the model has finished thinking.",
                elem_id="rs-stop-in-reasoning",
            ),
        )
        add(
            "steering_every_tokens",
            gr.Number(label="Tokens between two notes", info="16 or more.", precision=0, elem_id="rs-steering-every"),
        )


def template_card(add: Callable[[str, Any], None]) -> None:
    """Make the controls and hand each over by the name of its setting."""
    add(
        "chat_template",
        gr.Textbox(
            label="Template by hand",
            info="Jinja in place of the model's own, or the name of one of its templates. Empty keeps its own.",
            lines=4,
            max_lines=16,
            elem_id="rs-chat-template",
        ),
    )
    gr.HTML('<div class="template-names" id="rs-template-names" hidden></div>', padding=False)


def _lines(label: str, info: str, elem_id: str) -> Any:
    return gr.Textbox(label=label, info=info, lines=3, max_lines=8, elem_id=elem_id)
