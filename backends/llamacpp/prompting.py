"""Chats as token ids, in llama.cpp's own tokenisation."""

from __future__ import annotations

from collections.abc import Sequence

from backends.llamacpp.library import Model
from backends.requests import Message
from models.chat_template import ChatTemplate
from models.control_text import ControlTexts, template_markup
from models.prompt import build_prompt, num_before_last, num_pinned, plain_ids
from models.turn_ends import turn_ends


class Prompts:
    """Turns chats into token ids for one model.

    Args:
        template: None for a base model, whose text is only continued.

    Attributes:
        end_ids: tokens that end a reply: those llama.cpp knows and those the template writes behind one.
    """

    def __init__(self, model: Model, template: ChatTemplate | None) -> None:
        self._model = model
        self._template = template
        markup = [] if template is None else template_markup(template, model.user_defined_texts)
        self._control_texts = ControlTexts([*model.control_texts, *markup])
        bos_text = None if model.bos_id is None else model.name(model.bos_id).decode()
        ends = [] if template is None else turn_ends(template, self._control_texts, bos_text)
        self.end_ids = tuple(sorted({*model.end_ids, *(token for text in ends for token in model.encode(text))}))

    def ids(self, messages: Sequence[Message], raw: bool = False) -> list[int]:
        """Return the prompt of a chat; of no messages, the token that begins a text, if the model has one.

        Args:
            raw: put the texts together without the template; control tokens spelled in them become those tokens.
        """
        model = self._model
        template, control_texts = self._template, self._control_texts
        return build_prompt(
            messages, template, model.encode, model.bos_id, model.adds_bos, raw=raw, control_texts=control_texts
        )

    def plain_ids(self, text: str) -> list[int]:
        """Return a text as it stands, with the token that begins one where the model has it and no template."""
        model = self._model
        return plain_ids(text, model.encode, model.bos_id, model.adds_bos)

    def num_pinned(self, messages: Sequence[Message]) -> int:
        """Return how many leading tokens the system prompt takes; see `models.prompt.num_pinned`."""
        return num_pinned(messages, self.ids)

    def num_before_last(self, messages: Sequence[Message]) -> int:
        """Return how many leading tokens the last message of a person changes nothing of."""
        return num_before_last(messages, self.ids)
