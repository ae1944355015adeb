"""Routes of search, folders, export, import and presets, under /app/. See `app.routes` for the rest."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from app.chat_export import MEDIA_TYPES, ExportFormat, exported, file_name
from app.chat_settings import to_json
from app.page_data import Json, chat_data
from app.request_values import CleanText, Number
from app.search_index import MAX_PER_MESSAGE
from app.service import Service


class File(BaseModel):
    """A file's text, with the name it has on the person's disk."""

    name: CleanText
    content: CleanText


class Folder(BaseModel):
    """Where to put a chat; empty takes it out of its folder."""

    folder: CleanText


class FolderChange(BaseModel):
    """A folder and its new name; empty takes its chats out."""

    folder: CleanText
    name: CleanText


class Named(BaseModel):
    """A preset to be saved under a name, from the settings of a chat (those of a new one if there is none)."""

    name: CleanText
    chat: Number | None = None


def archive_routes(service: Service, assets: Path) -> APIRouter:
    """Return the routes; `assets` holds the style sheets that exported HTML carries along."""
    router = APIRouter()
    for part in (_search_routes(service), _file_routes(service, assets), _preset_routes(service)):
        router.include_router(part)
    return router


def _search_routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get("/search")
    def search(query: CleanText, chat: Number | None = None, message: Number | None = None) -> Json:
        """Return messages with hits: offsets in characters of the message's text, as `app.transcript` counts them.

        "more" tells that a message has hits that only a search in it alone gives.
        """
        found = service.library.search(query, chat, message)
        has_more = [message is None and each.num_passages > MAX_PER_MESSAGE for each in found]
        return {"messages": [{**asdict(each), "more": more} for each, more in zip(found, has_more, strict=True)]}

    @router.put("/chats/{chat_id}/folder")
    def file(chat_id: Number, wanted: Folder) -> Json:
        return chat_data(service.library.file_chat(chat_id, wanted.folder))

    @router.patch("/folders")
    def rename_folder(wanted: FolderChange) -> Json:
        return {"folder": service.library.rename_folder(wanted.folder, wanted.name)}

    return router


def _file_routes(service: Service, assets: Path) -> APIRouter:
    router = APIRouter()

    @router.get("/chats/{chat_id}/export.{format_}")
    def export(chat_id: Number, format_: ExportFormat) -> Response:
        chat = service.library.archived(chat_id)
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(file_name(chat, format_), safe='')}"}
        media_type = f"{MEDIA_TYPES[format_]}; charset=utf-8"
        return StreamingResponse(exported(chat, format_, assets), media_type=media_type, headers=headers)

    @router.get("/backup")
    def backup() -> Response:
        """Return all chats as one file, which `ringside import` reads."""
        pieces = service.library.backed_up()
        first = next(pieces)  # by now it is whole, or an error says why not
        name = time.strftime("ringside-%Y%m%d-%H%M%S.sqlite")
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return StreamingResponse(chain([first], pieces), media_type="application/vnd.sqlite3", headers=headers)

    @router.post("/import")
    async def import_(request: Request, with_templates: bool = False) -> Json:
        """Take a `File`, which can be so large that it goes to disk as it arrives and is read in another process.

        Return the chats that came in; "left_out" says in words what of the file is not in them, which includes their
        chat templates unless these are asked for.
        """
        with tempfile.TemporaryDirectory(prefix=".import-", dir=service.application.data_folder) as folder:
            upload = Path(folder) / "upload.json"
            try:
                with upload.open("wb") as file:
                    async for part in request.stream():
                        file.write(part)
            except ClientDisconnect:  # nobody is there to be told
                return {}
            chats, left_out = await run_in_threadpool(service.library.import_upload, upload, with_templates)
            return {"chats": list(map(chat_data, chats)), "left_out": left_out}

    return router


def _preset_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/presets")
    presets = service.library.presets

    @router.get("")
    def names() -> Json:
        return {"names": presets.names()}

    @router.post("")
    def save(wanted: Named) -> Json:
        return {"name": presets.save(wanted.name, service.settings(wanted.chat))}

    @router.post("/import")
    def add(file: File) -> Json:
        return {"name": presets.add(file.name, file.content)}

    @router.get("/{name}")
    def text(name: CleanText) -> Response:
        """Return the preset's file."""
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(f'{name}.toml', safe='')}"}
        return Response(presets.text(name), media_type="application/toml", headers=headers)

    @router.post("/{name}/apply")
    def apply(name: CleanText, chat: Number | None = None) -> Response:
        """Change a chat's settings (those of new ones if there is none) to what the preset says; return them."""
        settings = presets.apply(name, service.settings(chat))
        service.apply_settings(settings, chat)
        return Response(to_json(settings), media_type="application/json")

    @router.delete("/{name}")
    def delete(name: CleanText) -> Json:
        presets.delete(name)
        return {}

    return router
