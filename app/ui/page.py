"""The page: Gradio carries layout, settings and theme; transcript, chat list and live panel are our own elements in it.

Those elements are filled and kept up to date by `assets/*.js` through the routes under /app/, so that what streams is
independent of this tab and costs the same at any length. Only the settings travel through Gradio's events.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when Gradio is imported: nothing leaves the machine

import gradio as gr
from fastapi import FastAPI

from app.outlook import model_choices
from app.routes import assets_folder
from app.service import Service
from app.ui import markup
from app.ui.first_script import FirstScript
from app.ui.gradio_errors import GradioErrors
from app.ui.notebook_markup import NOTEBOOK
from app.ui.presets_markup import PRESETS
from app.ui.settings_form import SettingsForm
from app.ui.theme import theme
from backends.errors import RingsideError

_STYLES = (
    "page",
    "reading",
    "floating",
    "side",
    "presets",
    "message_controls",
    "long_reading",
    "go_to",
    "prompt_view",
    "notebook",
    "estimate",
    "drafts",
)
_HEAD = "".join(f'<link rel="stylesheet" href="/app/assets/{name}.css">' for name in _STYLES)
_HEAD += '<script type="module" src="/app/assets/main.js"></script>'

_QUEUE_PAUSE_S = 1.0

# Gradio's handlers get the chat on screen from the page's own script, in place of the first input.
_WITH_CHAT = "(chat, ...values) => [window.ringside?.chatId ?? null, ...values]"
_SENDING = (
    "(chat, ...values) => { window.ringside?.settingsSent(); return [window.ringside?.chatId ?? null, ...values] }"
)


def mount_page(app: FastAPI, service: Service) -> FastAPI:
    """Put the page at / of the application."""
    app.add_middleware(FirstScript, source="/app/assets/idle_frames.js")
    app.add_middleware(GradioErrors)
    page = build_page(service)
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=theme(),
        head=_HEAD,
        footer_links=[],
        run_history=False,
        show_error=False,
        pwa=True,
        favicon_path=str(assets_folder() / "icon.png"),
    )
    # Gradio 6.31 looks into its queue of events a thousand times a second, a fourteenth of a core for as long as the
    # application runs. No event here goes through the queue, see `_wire`.
    page._queue.sleep_when_free = page._queue.progress_update_sleep_when_free = _QUEUE_PAUSE_S
    return mounted


def build_page(service: Service) -> Any:
    """Return the Gradio application."""
    with gr.Blocks(title="Ringside", analytics_enabled=False, fill_width=True) as page:
        with gr.Row(elem_id="rs-shell"):
            _html(markup.SIDE, "rs-side")
            with gr.Column(elem_id="rs-middle"):
                _html(markup.TOP, "rs-top")
                with gr.Column(elem_id="rs-start", elem_classes="scrolls"):
                    _html(markup.WELCOME, "rs-welcome")
                    _html(PRESETS, "rs-presets")
                    form = SettingsForm()
                    problem = _html("", "rs-settings-problem")
                    _html(markup.OPENINGS, "rs-openings-card")
                _html(markup.TRANSCRIPT, "rs-transcript")
                _html(NOTEBOOK, "rs-notebook-card")
                _html(markup.COMPOSER, "rs-composer")
            _html(markup.PANEL, "rs-panel")
        chat = gr.Number(visible="hidden", elem_id="rs-chat-id")
        refresh = gr.Button("Refresh", elem_id="rs-refresh")
        _wire(service, form, chat, refresh, problem)
    return page


def _wire(service: Service, form: SettingsForm, chat: Any, refresh: Any, problem: Any) -> None:
    application = service.application

    def show(chat_id: float | None) -> list[Any]:
        models = model_choices(application.data_folder, application.model_folders)  # files come and go
        try:
            settings = service.settings(_id(chat_id))
        except RingsideError:  # deleted in another tab; the page goes to a new chat
            settings = service.settings()
        return [*form.shown(settings, models), ""]

    def keep(chat_id: float | None, *values: Any) -> str:
        try:
            service.apply_settings(form.settings(values, service.settings(_id(chat_id))), _id(chat_id))
        except RingsideError as error:
            return markup.problem(error.message, error.hint)
        return ""

    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    shown = refresh.click(show, chat, [*form.controls, problem], js=_WITH_CHAT, trigger_mode="always_last", **quiet)
    shown.then(None, js="() => { window.ringside?.settingsShown() }", **quiet)
    gr.on(
        [control.input for control in form.controls],
        keep,
        [chat, *form.controls],
        problem,
        js=_SENDING,
        trigger_mode="always_last",
        **quiet,
    ).then(None, js="() => { window.ringside?.settingsKept() }", **quiet)


def _html(value: str, elem_id: str) -> Any:
    return gr.HTML(value, elem_id=elem_id, js_on_load=None, apply_default_css=False, padding=False)


def _id(chat_id: float | None) -> int | None:
    return None if chat_id is None else int(chat_id)
