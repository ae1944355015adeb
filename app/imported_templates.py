"""Chat templates that come with imported chats: programs of someone else's, which stay out unless asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from app.archive import ArchivedChat, LeftOut
from models.chat_template import is_source

_FIELD = "chat_template"


def without_templates(chats: Iterable[ArchivedChat]) -> list[ArchivedChat]:
    """Return chats without the templates in their settings, which are then among what was left out.

    The name of one of a model's own templates stays: it brings no program.
    """
    return [_without_template(chat) for chat in chats]


def _without_template(chat: ArchivedChat) -> ArchivedChat:
    try:
        settings = json.loads(chat.settings or "{}")
    except (ValueError, RecursionError):  # nothing is read from them later either
        return replace(chat, settings="")
    template = settings.get(_FIELD) if isinstance(settings, dict) else None
    if not isinstance(template, str) or not is_source(template):
        return chat
    del settings[_FIELD]
    left_out = (*chat.left_out, LeftOut("chat template", "chat templates", 1))
    return replace(chat, settings=json.dumps(settings) if settings else "", left_out=left_out)
