"""Routes for reading long replies: blocks and sections by number, headings, places, and the text behind blocks."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from fastapi.responses import Response

from app.finding import MAX_PLACES, Words, find
from app.page_data import Json
from app.request_values import CleanText, Number
from app.service import Service
from app.store import StoredMessage
from app.transcript import HARD_LIMIT_CHARS, Transcript
from app.transcripts import Transcripts
from backends.errors import BadRequestError

PAGE_CHARS = 300_000
"""HTML of one reply in one answer; a longer one is fetched in several."""

LONG_CHARS = 500_000
"""A chat of more text is not loaded wholly: its longer replies come as sections, loaded where the reader is."""

SHORT_REPLY_CHARS = 24_000
"""A reply this short is loaded wholly in any chat."""

MAX_BLOCKS = 400
"""In one answer, where blocks are asked for by number."""

MAX_HEADINGS = 10_000

_MAX_SPELLINGS = 200

_RENDER_STEP_CHARS = 150_000
_TAIL_CHARS = 6_000


def reading_routes(service: Service, transcripts: Transcripts) -> APIRouter:
    """Return the routes; all of them only read."""
    router = APIRouter()

    @router.get("/messages/{message_id}/blocks")
    def blocks(message_id: Number, first: Number = 0, count: Number | None = None) -> Json:
        """Return blocks from `first` on: `count` of them, or as many as fit one answer."""
        run = service.run_of_message(message_id)
        source = text_source(service, message_id)
        first = max(first, 0)
        if count is None:
            slice_ = transcripts.slice(message_id, source, first, max_chars=PAGE_CHARS)
        else:
            slice_ = transcripts.slice(message_id, source, first, max_blocks=min(max(count, 1), MAX_BLOCKS))
        return {
            "first": slice_.first,
            "blocks": slice_.blocks,
            "open": slice_.open_html,
            "num_blocks": slice_.num_blocks,
            "num_chars": slice_.num_chars,
            "writing": run is not None and not run.finished,
        }

    @router.get("/messages/{message_id}/outline")
    def outline(message_id: Number, section: Number = 0) -> Json:
        """Return sections from one on; while `open` is null there is more to ask for."""
        return outline_data(transcripts, message_id, text_source(service, message_id), max(section, 0))

    @router.get("/chats/{chat_id}/headings")
    def headings(chat_id: Number) -> Json:
        """Return the headings of the chat's replies, as [message, block, level, text]."""
        found = [
            [message.id, heading.block, heading.level, heading.text]
            for message in service.messages(chat_id)
            if message.role == "assistant"
            for heading in transcripts.headings(message.id, text_source(service, message.id, message))
        ]
        return {"headings": found[:MAX_HEADINGS], "more": len(found) > MAX_HEADINGS}

    @router.get("/messages/{message_id}/place")
    def place(message_id: Number, offset: Number, query: CleanText = "") -> Json:
        """Return the block that holds a character of the text, and how often `query` stands before it in that block."""
        source = text_source(service, message_id)
        block = transcripts.block_at(message_id, source, offset)
        nth = 0
        if query:
            first = max(0, offset - HARD_LIMIT_CHARS)
            before = Words(query).spans(source(0)[first : max(offset, 0)])
            nth = sum(transcripts.block_at(message_id, source, first + start) == block for start, _ in before)
        return {"block": block, "nth": nth}

    @router.get("/messages/{message_id}/source")
    def source_of_blocks(message_id: Number, first: Number, count: Number) -> Response:
        """Return the text that these blocks show, exactly as kept."""
        source = text_source(service, message_id)
        start, end = transcripts.text_span(message_id, source, max(first, 0), max(count, 0))
        return exact(source(0)[start:end])

    @router.get("/chats/{chat_id}/texts")
    def texts(chat_id: Number, first: Number, last: Number) -> Json:
        """Return the texts from one message on screen to another, exactly as kept, as [message, text]."""
        messages = service.messages(chat_id)
        ids = [message.id for message in messages]
        if first not in ids or last not in ids:
            raise BadRequestError("This message is gone.", "Load the page again.")
        between = messages[ids.index(first) : ids.index(last) + 1]
        return {"texts": [[message.id, message.text] for message in between]}

    @router.get("/chats/{chat_id}/find")
    def find_in_chat(chat_id: Number, query: CleanText) -> Json:
        """Return every place of the words in the chat's texts, as [message, start, length] in code points.

        "spellings" are the words as they stand there, for marking them.
        """
        texts = {message.id: message.text for message in service.messages(chat_id)}
        found = find(texts.items(), query)
        places = [[place.message_id, place.start, place.num_chars] for place in found[:MAX_PLACES]]
        spellings = dict.fromkeys(texts[message][start : start + length] for message, start, length in places)
        return {"places": places, "more": len(found) > MAX_PLACES, "spellings": list(spellings)[:_MAX_SPELLINGS]}

    return router


def text_source(service: Service, message_id: int, stored: StoredMessage | None = None) -> Callable[[int], str]:
    """Return a function that gives a message's text from an offset on, as it is now; it reads it when first called."""
    run = service.run_of_message(message_id)
    if run is not None:
        return run.text_from
    kept = [stored.text] if stored else []

    def text_from(offset: Number) -> str:
        if not kept:
            kept.append(service.message(message_id).text)
        return kept[0][offset:]

    return text_from


def outline_data(transcripts: Transcripts, message_id: int, source: Callable[[int], str], first_section: int) -> Json:
    """Return sections from one on; the first answer shows the text's end meanwhile, if it is not rendered yet."""
    outline = transcripts.outline(message_id, source, first_section, _RENDER_STEP_CHARS)
    data: Json = {
        "section": first_section,
        "sections": [[section.first, section.num_chars, section.num_rows] for section in outline.sections],
        "num_blocks": outline.num_blocks,
        "num_reasoning_blocks": outline.num_reasoning_blocks,
        "open": outline.open_html,
        "num_chars": outline.num_chars,
        "num_chars_rendered": outline.num_chars_rendered,
    }
    if outline.open_html is None and first_section == 0:
        data["tail"] = _rendered(_tail(source(max(outline.num_chars - _TAIL_CHARS, 0))))
    return data


def exact(text: str) -> Response:
    """Return an answer that is the text, surrogates and all."""
    return Response(text.encode("utf-8", "surrogatepass"), media_type="text/plain; charset=utf-8")


def _tail(text: str) -> str:
    """Return the end of a text from its first blank line on, so that no block is cut where it shows."""
    _, blank, rest = text.partition("\n\n")
    return rest if blank else text


def _rendered(text: str) -> str:
    transcript = Transcript()
    transcript.append(text)
    return "".join(block.html for block in transcript.blocks) + transcript.open_html()
