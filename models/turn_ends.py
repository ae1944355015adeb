"""Tokens that end a reply because the chat template writes them behind one, whatever the model's files name.

Many folders name `<|endoftext|>` alone while their template closes turns with `<|im_end|>`: the model then writes that,
and would go on with a turn of the person's. `models.special_tokens` reads what the files do name.
"""

from __future__ import annotations

from backends.errors import BadRequestError
from backends.requests import Message
from models.chat_template import ChatTemplate
from models.control_text import ControlTexts
from models.end_tokens import ends_no_reply

_REPLY = "ringside-reply"
_LAST = (Message("user", "0"), Message("assistant", _REPLY))
_ANSWERED = (*_LAST, Message("user", "2"))


def turn_ends(template: ChatTemplate, control_texts: ControlTexts, bos_text: str | None) -> list[str]:
    """Return the control tokens a template writes right behind a reply, at the end of a chat or before the next turn.

    A token that begins texts ends none. Where a template closes no turn, the token that opens the person's is one:
    GLM's models are trained to end so.
    """
    behind = [control_texts.at_start(_behind_reply(template, chat)) for chat in (_LAST, _ANSWERED)]
    found = dict.fromkeys(text for text in behind if text is not None and text != bos_text)
    return [text for text in found if not ends_no_reply(text, control_texts)]


def _behind_reply(template: ChatTemplate, chat: tuple[Message, ...]) -> str:
    try:
        return template.render(chat, add_generation_prompt=False).partition(_REPLY)[2].lstrip()
    except BadRequestError:
        return ""
