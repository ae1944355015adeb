"""Routes of the exact prompt of a reply, a page of tokens at a time. See `app.routes` for the rest."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response

from app.page_data import Json
from app.request_values import Number
from app.service import Service

MAX_TOKENS = 2000
"""In one answer."""


def prompt_routes(service: Service) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/messages/{message_id}/prompt")

    @router.get("")
    def page(message_id: Number, first: Number = 0, count: Number = MAX_TOKENS) -> Json:
        """Return tokens [first, first + count) as [id, piece of text], and how many there are."""
        prompt = service.prompt(message_id)
        first = max(first, 0)
        ids = prompt.token_ids[first : first + min(max(count, 0), MAX_TOKENS)]
        return {
            "num_tokens": len(prompt.token_ids),
            "first": first,
            "tokens": [[token_id, prompt.piece(token_id)] for token_id in ids],
        }

    @router.get("/text")
    def text(message_id: Number) -> Response:
        return PlainTextResponse(service.prompt(message_id).text)

    @router.get("/ids")
    def ids(message_id: Number) -> Response:
        return PlainTextResponse(", ".join(map(str, service.prompt(message_id).token_ids)))

    return router
