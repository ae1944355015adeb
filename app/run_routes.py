"""Routes of runs as text, for the command line: begin one, follow it by offset, stop it. See `app.routes`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.page_data import Json, started_data
from app.request_values import CleanText, Number
from app.run_data import view_data
from app.service import Service
from backends.errors import BadRequestError

MAX_WAIT_S = 20.0


class NewRun(BaseModel):
    """A message for a chat of its own, and settings by their flat names (see `app.chat_settings`)."""

    prompt: CleanText
    settings: dict[str, Any] = Field(default_factory=dict)


def run_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/runs")

    @router.get("")
    def runs() -> Json:
        """Return the runs being written and waiting, in the order they are served."""
        return {"runs": [started_data(run) for run in service.active_runs()]}

    @router.post("")
    def begin(wanted: NewRun) -> Json:
        return started_data(service.begin(wanted.prompt, wanted.settings))

    @router.get("/{run_id}")
    async def view(run_id: CleanText, offset: Number = 0, version: Number | None = None, wait_s: float = 0.0) -> Json:
        """Return the state of a run and its text from a character on; waits for a version other than `version`."""
        run = service.run(run_id)
        if run is None:
            raise BadRequestError("This run is over.", "Its text is in the chat.")
        if version is not None:
            await run.changed(version, min(max(wait_s, 0.0), MAX_WAIT_S))
        return view_data(run.view(max(offset, 0)))

    @router.post("/{run_id}/stop")
    def stop(run_id: CleanText) -> Json:
        service.cancel(run_id)
        return {}

    return router
