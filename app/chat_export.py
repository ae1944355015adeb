"""Chats as files for people: Markdown, plain text, and HTML that reads well offline. JSON is `app.chat_json`'s.

The HTML is made of the same sanitised blocks as the page, has no script, and asks nobody for anything.
"""

from __future__ import annotations

import html
import re
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from markdown_it.token import Token

from app import chat_json
from app.archive import ArchivedChat, ArchivedMessage
from app.figures import duration
from app.folded_transcript import FoldedTranscript
from app.markdown import make_parser
from app.metrics import MetricsRecord
from models.lone_closing import missing_opening

ExportFormat = Literal["md", "txt", "html", "json"]

MEDIA_TYPES: dict[ExportFormat, str] = {
    "md": "text/markdown",
    "txt": "text/plain",
    "html": "text/html",
    "json": "application/json",
}

_PARSER = make_parser()
_PIECE_CHARS = 100_000
_FONT_FACES = re.compile(r"@font-face\s*\{.*?\}", re.DOTALL)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def exported(chat: ArchivedChat, format_: ExportFormat, assets: Path) -> Iterator[str]:
    """Yield a chat as the text of a file, piece by piece.

    Args:
        assets: folder with the style sheets that HTML carries along.
    """
    match format_:
        case "md":
            yield from _markdown(chat)
        case "txt":
            yield from _plain(chat)
        case "html":
            yield from _html(chat, assets)
        case "json":
            yield chat_json.to_file([chat])


def file_name(chat: ArchivedChat, format_: ExportFormat) -> str:
    """Return a name that every file system takes: the title's letters and digits, at most 60 of them."""
    title = unicodedata.normalize("NFC", chat.title)
    words = re.sub(r"[^\w\-]+", " ", title).split()
    return f"{' '.join(words)[:60].strip() or 'chat'}.{format_}"


def speaker(message: ArchivedMessage) -> str:
    """Return who wrote a message, as its heading."""
    if message.role == "user":
        return "You"
    return message.model_name or "Reply"


def facts(message: ArchivedMessage) -> str:
    """Return a reply's figures and how it ended, on one line; empty for a user's text."""
    if message.role == "user":
        return ""
    parts = [f"{len(message.token_ids):,} tokens"] if message.token_ids else []
    if (record := _metrics(message)) is not None:
        if record.summary.tokens_per_s_average:
            parts.append(f"{record.summary.tokens_per_s_average:.1f} tokens/s")
        if record.summary.elapsed_s:
            parts.append(duration(record.summary.elapsed_s))
    if message.seed is not None:
        parts.append(f"seed {message.seed}")
    ended = {"cancelled": "stopped", "cut": "cut", "error": "ended by an error"}.get(message.status)
    return " · ".join([*parts, *([ended] if ended else [])])


def _markdown(chat: ArchivedChat) -> Iterator[str]:
    yield f"# {chat.title}\n" if chat.title else "# Chat\n"
    for message in chat.shown:
        heading = "" if chat.kind == "notebook" else f"## {speaker(message)}\n\n"
        yield f"\n{heading}{message.text}{_end_of_fence(message.text)}\n"
        if line := facts(message):
            yield f"\n*{line}*\n"


def _end_of_fence(text: str) -> str:
    """Return what closes a fence that the text leaves open, or the rest of the file would be code."""
    source = re.sub(r"\r\n?", "\n", text)
    tokens: list[Token] = []
    _PARSER.block.parse(source, _PARSER, {}, tokens)
    fences = [token for token in tokens if token.type == "fence" and token.map]
    if not fences or fences[-1] is not tokens[-1] or not fences[-1].map:
        return ""
    start, end = fences[-1].map
    lines = source.rstrip("\n").split("\n")
    mark = fences[-1].markup
    is_closed = (
        end - start > 1 and lines[end - 1].strip().startswith(mark) and not lines[end - 1].strip().strip(mark[0])
    )
    return "" if is_closed else f"\n{mark}"


def _plain(chat: ArchivedChat) -> Iterator[str]:
    yield f"{chat.title}\n{'=' * len(chat.title)}\n" if chat.title else ""
    for message in chat.shown:
        heading = "" if chat.kind == "notebook" else f"{speaker(message)}:\n\n"
        yield f"\n{heading}{message.text}\n"


def _html(chat: ArchivedChat, assets: Path) -> Iterator[str]:
    title = html.escape(chat.title or "Chat")
    reading = _FONT_FACES.sub("", (assets / "reading.css").read_text("utf-8"))
    yield (
        f'<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="generator" content="Ringside">\n'
        f"<style>\n{reading}\n{(assets / 'exported.css').read_text('utf-8')}</style>\n</head>\n"
        f'<body id="rs-shell">\n<main class="messages">\n<h1 dir="auto">{title}</h1>\n'
    )
    for message in chat.shown:
        yield from _html_message(message, "" if chat.kind == "notebook" else speaker(message))
    written = time.strftime("%Y-%m-%d", time.gmtime(chat.created_at_s)) if chat.created_at_s else ""
    yield f'<p class="written">{written}</p>\n</main>\n</body>\n</html>\n'


def _html_message(message: ArchivedMessage, heading: str) -> Iterator[str]:
    yield f'<article class="message {message.role}">\n'
    if heading:
        yield f"<h2>{html.escape(heading)}</h2>\n"
    if message.role == "user":
        yield f'<div class="said" dir="auto">{html.escape(message.text)}</div>\n'
    else:
        yield '<div class="reply">'
        yield from _reply_sections(message)
        yield f"</div>\n<footer>{html.escape(facts(message))}</footer>\n"
    yield "</article>\n"


def _reply_sections(message: ArchivedMessage) -> Iterator[str]:
    """Yield blocks as they are finished, in sections that a browser lays out only when they come into view."""
    text = message.text
    transcript = FoldedTranscript(lambda: message.opening or missing_opening(text))
    for start in range(0, len(text), _PIECE_CHARS):
        num_known = len(transcript.blocks)
        transcript.append(text[start : start + _PIECE_CHARS])
        yield f"<section>{''.join(block.html for block in transcript.blocks[num_known:])}</section>\n"
    yield f"<section>{transcript.open_html()}</section>"


def _metrics(message: ArchivedMessage) -> MetricsRecord | None:
    try:
        return MetricsRecord.unpack(message.packed_metrics) if message.packed_metrics is not None else None
    except ValueError:
        return None
