"""The page's own HTTP routes, under /app/: chats, replies by block, figures, and one event stream a tab.

They are beside Gradio and not in it because a Gradio event dies with its tab and carries whole values; these are read
by offset, so any number of tabs can come late, go, and come back. `app.server` lets only the local page call them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import plotly
from fastapi import APIRouter, FastAPI, Query
from fastapi.responses import FileResponse, PlainTextResponse, Response
from pydantic import BaseModel

from app.archive_routes import archive_routes
from app.demo_run import start_demo
from app.estimate_routes import estimate_routes
from app.login import Login
from app.message_window import MessageWindow
from app.outlook import outlook
from app.page_data import Json, chat_data, metrics_data, outlook_data, started_data, status_data
from app.prompt_routes import prompt_routes
from app.proof_routes import proof_pages, proof_routes
from app.reading_routes import exact, reading_routes, text_source
from app.request_values import CleanText, Number
from app.route_errors import add_error_answers
from app.run_routes import run_routes
from app.service import Service
from app.session_routes import session_routes
from app.stream_routes import stream_routes
from app.transcripts import Transcripts
from app.tree_routes import tree_routes
from backends.errors import BadRequestError

_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png"}


class Text(BaseModel):
    """A message to send."""

    text: CleanText


class Question(Text):
    """A message to send, and how many variants of a reply to write."""

    variants: Number = 1


class Again(BaseModel):
    """How many variants to write anew."""

    variants: Number = 1


class ChatChange(BaseModel):
    """What to change of a chat; None leaves it."""

    title: CleanText | None = None
    pinned: bool | None = None


def assets_folder() -> Path:
    """Return where scripts and styles lie: beside the package in a checkout, inside it once installed."""
    installed = Path(__file__).parent / "assets"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "assets"


def add_routes(
    app: FastAPI, service: Service, stopping: Callable[[], bool] = lambda: False, login: Login | None = None
) -> None:
    """Add the /app/ routes; open event streams end once `stopping()` is true."""
    transcripts = Transcripts(edition_of=service.num_edits, opening_of=service.opening)
    window = MessageWindow(service, transcripts)
    add_error_answers(app)
    for router in (
        _asset_routes(),
        _chat_routes(service, window),
        _reply_routes(service, transcripts, window),
        reading_routes(service, transcripts),
        prompt_routes(service),
        _model_routes(service),
        tree_routes(service),
        run_routes(service),
        archive_routes(service, assets_folder()),
        estimate_routes(service),
        proof_pages(),
        proof_routes(service),
        stream_routes(service, transcripts, stopping),
        session_routes(login),
    ):
        app.include_router(router, prefix="/app")


def _asset_routes() -> APIRouter:
    router = APIRouter()
    # a fixed list: no path from outside ever reaches the file system
    files = {path.name: path for path in assets_folder().iterdir() if path.suffix in _MEDIA_TYPES}
    files["plotly.min.js"] = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"

    @router.get("/assets/{name}")
    def asset(name: CleanText) -> Response:
        path = files.get(name)
        if path is None:
            return PlainTextResponse("There is no such file.", status_code=404)
        return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})

    @router.get("/health")
    def health() -> Json:
        return {"app": "ringside"}

    return router


def _chat_routes(service: Service, window: MessageWindow) -> APIRouter:
    router = APIRouter(prefix="/chats")

    @router.get("")
    def chats(query: CleanText = "") -> Json:
        writing = {run.chat_id for run in service.active_runs()}
        return {"chats": [chat_data(chat, writing=chat.id in writing) for chat in service.chats(query)]}

    @router.post("")
    def create() -> Json:
        return chat_data(service.create_chat())

    @router.get("/{chat_id}")
    def chat(chat_id: Number, known: Number = 0, first: Number = 0, count: Number = 0) -> Json:
        """Return a chat's messages, whole at its end and at the places [first, first + count); see `MessageWindow`."""
        found = service.chat(chat_id)
        near = range(max(first, 0), max(first, 0) + max(count, 0))
        num_changes = service.num_changes(chat_id)  # first: a change after it is told by the stream
        active = [run.message_id for run in service.active_runs(chat_id)]
        return {
            "chat": chat_data(found, writing=bool(active)),
            # a notebook's document is read by its own route, as text
            "messages": [] if found.kind == "notebook" else window.of_chat(chat_id, known, near),
            "writing": active,
            "drafts": service.drafts(chat_id),
            "changes": num_changes,
        }

    @router.patch("/{chat_id}")
    def change(chat_id: Number, wanted: ChatChange) -> Json:
        if wanted.title is not None:
            service.rename_chat(chat_id, wanted.title)
        if wanted.pinned is not None:
            service.pin_chat(chat_id, wanted.pinned)
        return chat_data(service.chat(chat_id))

    @router.delete("/{chat_id}")
    def delete(chat_id: Number) -> Json:
        service.delete_chat(chat_id)
        return {}

    @router.post("/{chat_id}/send")
    def send(chat_id: Number, body: Question) -> Json:
        return started_data(service.send(chat_id, body.text, body.variants))

    @router.post("/{chat_id}/edit")
    def edit(chat_id: Number, body: Text) -> Json:
        return started_data(service.edit_last(chat_id, body.text))

    @router.post("/{chat_id}/continue")
    def continue_reply(chat_id: Number) -> Json:
        return started_data(service.continue_reply(chat_id))

    @router.post("/{chat_id}/regenerate")
    def regenerate(chat_id: Number, body: Again | None = None) -> Json:
        return started_data(service.regenerate(chat_id, 1 if body is None else body.variants))

    @router.post("/{chat_id}/stop")
    def stop(chat_id: Number) -> Json:
        service.stop(chat_id)
        return {}

    return router


def _reply_routes(service: Service, transcripts: Transcripts, window: MessageWindow) -> APIRouter:
    router = APIRouter(prefix="/messages")

    @router.get("")
    def messages(ids: Annotated[list[Number], Query()]) -> Json:
        """Return messages whole; those that are gone are left out."""
        return {"messages": window.of_ids(ids)}

    @router.get("/{message_id}/text")
    def text(message_id: Number) -> Response:
        """Return the text exactly as kept; what copy buttons and downloads take."""
        return exact(text_source(service, message_id)(0))

    @router.get("/{message_id}/code/{number}")
    def code(message_id: Number, number: Number) -> Response:
        try:
            return exact(transcripts.code(message_id, text_source(service, message_id), number))
        except IndexError:
            raise BadRequestError("This piece of code is no longer there.", "Load the page again.") from None

    @router.get("/{message_id}/metrics")
    def metrics(message_id: Number) -> Json:
        record = service.metrics(message_id)
        return {"metrics": None if record is None else metrics_data(record)}

    @router.get("/{message_id}/metrics.csv")
    def metrics_csv(message_id: Number) -> Response:
        name = f"ringside-{message_id}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(service.metrics_csv(message_id), media_type="text/csv", headers=headers)

    return router


def _model_routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get("/status")
    def status() -> Json:
        return {**status_data(service.status()), "notices": service.notices()}

    @router.get("/outlook")
    def before_loading(chat: Number | None = None) -> Json:
        """Return what the settings will take and how to begin, before anything is loaded."""
        return outlook_data(outlook(service.settings(chat), service.application.data_folder), service.settings(chat))

    @router.post("/demo")
    def demo() -> Json:
        """Start what the app is about in a chat of its own: a long reply with a small window."""
        return started_data(start_demo(service))

    @router.post("/load")
    def load(chat: Number | None = None) -> Json:
        service.load(chat)
        return {}

    @router.post("/unload")
    def unload() -> Json:
        service.unload()
        return {}

    return router
