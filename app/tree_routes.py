"""Routes of variants, branches, edits, undo and notebooks, under /app/. See `app.routes` for the rest.

Offsets count characters as Python does (code points); a browser's strings count UTF-16 units.
"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from app.page_data import Json, chat_data, message_data, started_data
from app.request_values import CleanText, Number
from app.service import Service


class NewText(BaseModel):
    """What to ask instead."""

    text: CleanText


class Edit(BaseModel):
    """A message's text, and the version of the message it is an edit of."""

    text: CleanText
    version: Number


class Cut(BaseModel):
    """How many characters of a reply to keep."""

    num_chars: Number


class Typed(BaseModel):
    """Characters [start, end) of a notebook become `text`; `version` is that of the document typed into."""

    start: Number
    end: Number
    text: CleanText
    version: Number


class Place(BaseModel):
    """Where a notebook is to be gone on with: at a character, or at the end (None)."""

    version: Number
    at: Number | None = None


def tree_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    for part in (_walking_routes(service), _writing_routes(service), _notebook_routes(service)):
        router.include_router(part)
    return router


def _walking_routes(service: Service) -> APIRouter:
    router = APIRouter()
    editing = service.editing

    @router.get("/chats/{chat_id}/variants")
    def variants(chat_id: Number) -> Json:
        """Return the variants of every message on screen, and how many steps can be undone."""
        return {"variants": editing.variants(chat_id), "num_steps": editing.num_steps(chat_id)}

    @router.get("/chats/{chat_id}/tree")
    def tree(chat_id: Number) -> Json:
        """Return every message of a chat with its parent and its first words, oldest first."""
        chat = service.chat(chat_id)
        nodes = [
            {"id": node.id, "parent": node.parent_id, "role": node.role, "status": node.status, "start": start}
            for node, start in editing.outline(chat_id)
        ]
        return {"messages": nodes, "leaf": chat.leaf_id}

    @router.post("/messages/{message_id}/select")
    def select(message_id: Number) -> Json:
        editing.select(message_id)
        return {}

    @router.post("/messages/{message_id}/branch")
    def branch(message_id: Number) -> Json:
        editing.branch(message_id)
        return {}

    @router.post("/chats/{chat_id}/undo")
    def undo(chat_id: Number) -> Json:
        return {"undone": editing.undo(chat_id), "num_steps": editing.num_steps(chat_id)}

    return router


def _writing_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/messages/{message_id}")
    editing = service.editing

    @router.post("/ask")
    def ask_again(message_id: Number, wanted: NewText) -> Json:
        return started_data(editing.ask_again(message_id, wanted.text))

    @router.post("/answer")
    def answer_again(message_id: Number) -> Json:
        return started_data(editing.answer_again(message_id))

    @router.post("/resume")
    def resume(message_id: Number) -> Json:
        return started_data(editing.resume(message_id))

    @router.patch("")
    def edit(message_id: Number, wanted: Edit) -> Json:
        return message_data(editing.edit(message_id, wanted.text, wanted.version))

    @router.post("/cut")
    def cut(message_id: Number, wanted: Cut) -> Json:
        return {"message": editing.cut(message_id, wanted.num_chars)}

    @router.delete("")
    def delete(message_id: Number) -> Json:
        editing.delete(message_id)
        return {}

    return router


def _notebook_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/notebooks")
    notebooks = service.notebooks

    def data(chat_id: int, with_text: bool) -> Json:
        document = notebooks.document(chat_id)
        text = {"text": document.text, "behind": notebooks.behind(document.id)} if with_text else {}
        return {**message_data(document), **text}

    @router.post("")
    def create(beside: bool = False) -> Json:
        """Return an empty notebook.

        Args:
            beside: a new one in any case; else the one that nothing was typed into yet is taken again.
        """
        return chat_data(service.create_chat(kind="notebook") if beside else service.create_notebook())

    @router.get("/{chat_id}")
    def document(chat_id: Number, with_text: bool = True) -> Json:
        return data(chat_id, with_text)

    @router.patch("/{chat_id}")
    def replace(chat_id: Number, typed: Typed) -> Json:
        document = notebooks.replace(chat_id, typed.start, typed.end, typed.text, typed.version)
        return message_data(document)

    @router.post("/{chat_id}/write")
    def write(chat_id: Number, place: Place) -> Json:
        return started_data(notebooks.write(chat_id, place.version, place.at))

    return router
