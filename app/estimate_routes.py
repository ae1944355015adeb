"""Routes of the estimate card: what every window would take before anything is loaded, and taking one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.page_data import Json
from app.request_values import Number
from app.service import Service
from backends.errors import RingsideError
from backends.requests import LoadRequest
from models.backend_support import config_for
from models.chat_template import find_source
from models.demo import DEMOS
from models.model_files import ModelFiles


class Window(BaseModel):
    """The window to use."""

    window: Number = Field(ge=1)


def estimate_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/estimate")

    @router.get("")
    def estimate(chat: Number | None = None, libraries: bool = False) -> Json:
        """Return the card of the settings, None where nothing is known to estimate.

        Args:
            libraries: measure the process without a model first, in a second or two, where that was not done yet.
        """
        request, data_folder = service.settings(chat).load, service.application.data_folder
        return {"card": card_data(request, data_folder, libraries)}

    @router.post("/use")
    def use(wanted: Window, chat: Number | None = None) -> Json:
        settings = service.settings(chat)
        service.apply_settings(replace(settings, load=replace(settings.load, window=wanted.window)), chat)
        return {}

    return router


def card_data(request: LoadRequest, data_folder: Path, libraries: bool) -> Json | None:
    """Return the card as values; None for echo, a model still to be fetched, or one whose layers are not known."""
    from app.proof import machine
    from app.proof.estimate import Surroundings, outlook
    from app.proof.estimate_card import estimate_card

    demo = DEMOS.get(request.model)
    path = demo.path(data_folder) if demo else Path(request.model).expanduser()
    if request.backend == "echo" or not path.exists():
        return None
    try:
        files = ModelFiles.open(path)
        config = config_for(files, request.backend)
    except RingsideError:  # the outlook says what is wrong with it
        return None
    if config is None:
        return None
    on_gpu = request.backend == "ring" and request.device != "cpu" and machine.gpu_name() is not None
    around = Surroundings(
        free_bytes=machine.free_bytes(on_gpu),
        on_gpu=on_gpu,
        runtime_bytes=machine.runtime_bytes(request.backend, measure=libraries),
        has_chat_template=find_source(files, request.chat_template) is not None,
    )
    return estimate_card(files, around, outlook(files, request, around)).as_json()
