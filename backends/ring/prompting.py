"""Chats as token ids for a model whose tokenizer is ours."""

from __future__ import annotations

from collections.abc import Sequence

from backends.errors import BadRequestError
from backends.requests import Message
from models.chat_template import ChatTemplate
from models.control_text import ControlTexts, template_markup
from models.prompt import build_prompt, num_pinned, plain_ids
from models.tokenizer import TextTokenizer
from models.turn_ends import turn_ends


class Prompts:
    """Turns chats into token ids for one model.

    Args:
        template: None for a base model, whose text is only continued.

    Attributes:
        end_ids: tokens that end a reply: those the model's files name and those the template writes behind one.
    """

    def __init__(self, tokenizer: TextTokenizer, template: ChatTemplate | None) -> None:
        self.tokenizer = tokenizer
        self._template = template
        markup = [] if template is None else template_markup(template, tokenizer.user_defined_texts)
        self._control_texts = ControlTexts([*tokenizer.control_texts, *markup])
        bos_text = None if tokenizer.bos_id is None else tokenizer.name(tokenizer.bos_id)
        ends = [] if template is None else turn_ends(template, self._control_texts, bos_text)
        self.end_ids = tuple(sorted({*tokenizer.eos_ids, *map(tokenizer.id_of, ends)}))

    @property
    def has_template(self) -> bool:
        return self._template is not None

    @property
    def reasoning_opening(self) -> str:
        return self._template.reasoning_opening if self._template is not None else ""

    def ids(self, messages: Sequence[Message], raw: bool = False) -> list[int]:
        """Return the prompt of a chat.

        Args:
            raw: put the texts together without the template; control tokens spelled in them become those tokens.

        Raises:
            BadRequestError: it comes to no token at all, or the template refuses the chat.
        """
        tokenizer = self.tokenizer
        template, bos_id, adds_bos = self._template, tokenizer.bos_id, tokenizer.adds_bos
        prompt = build_prompt(
            messages, template, tokenizer.encode, bos_id, adds_bos, raw=raw, control_texts=self._control_texts
        )
        if not prompt:
            raise BadRequestError(
                "The prompt is empty, and this model has no token to begin a text with.", "Write something."
            )
        return prompt

    def plain_ids(self, text: str) -> list[int]:
        """Return a text as it stands, with the token that begins one where the model has it and no template."""
        tokenizer = self.tokenizer
        return plain_ids(text, tokenizer.encode, tokenizer.bos_id, tokenizer.adds_bos)

    def num_pinned(self, messages: Sequence[Message]) -> int:
        """Return how many leading tokens the system prompt takes; see `models.prompt.num_pinned`."""
        return num_pinned(messages, self.ids)
