"""One rendering of a chat by a template, and what a template is like, found out by short chats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from backends.errors import BadRequestError, ModelFileError
from models.templates.process import (
    BrokenTemplate,
    Limits,
    TemplateFailure,
    TemplateOverLimit,
    TemplateTooSlow,
    processes,
)

MAX_SOURCE_CHARACTERS = 1_000_000  # the longest in the wild have 50,000

_PROBE = "ringside-probe"
_SPARE_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Traits:
    """Answers of a template to short chats.

    Attributes:
        takes_parts: it wants the content of a message as a list of parts.
        has_system_role: a system message appears in what it writes.
    """

    takes_parts: bool
    has_system_role: bool


@lru_cache(maxsize=64)
def traits_of(source: str, token_names: tuple[tuple[str, str], ...]) -> Traits | TemplateFailure:
    """Try a template out; once for each, since the page asks often and one that overdoes it takes seconds to say so.

    Raises:
        ModelFileError: it is far longer than any template.
        BadRequestError: the machine is too busy to tell; what is raised is not remembered.
    """
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise ModelFileError(
            f"A chat template of {len(source):,} characters is none: they have {MAX_SOURCE_CHARACTERS:,} at most.",
            "Give another one by hand.",
        )
    names = dict(token_names)
    try:
        takes_parts = not _shows(source, names, "user", False) and _shows(source, names, "user", True)
        return Traits(takes_parts, _shows(source, names, "system", takes_parts))
    except TemplateTooSlow as error:
        raise BadRequestError(f"A chat template cannot be tried out: {error.reason}.", "Try again.") from error
    except (BrokenTemplate, TemplateOverLimit) as error:
        return error.with_traceback(None)  # what is remembered holds no frames


def _shows(source: str, token_names: Mapping[str, str], role: str, as_parts: bool) -> bool:
    """Whether a message of this role, written in this form, appears in the prompt."""
    chat: list[dict[str, object]] = [{"role": role, "content": parts(_PROBE) if as_parts else _PROBE}]
    if role == "system":
        chat.append({"role": "user", "content": parts("?") if as_parts else "?"})
    try:
        return _PROBE in rendered(source, token_names, chat, True, 0)
    except (BrokenTemplate, TemplateOverLimit):
        raise
    except TemplateFailure:
        return False


def rendered(
    source: str,
    token_names: Mapping[str, str],
    chat: Sequence[Mapping[str, object]],
    add_generation_prompt: bool,
    num_characters: int,
) -> str:
    """Return what a template writes for a chat of so many characters. Raises TemplateFailure."""
    variables = {
        "messages": chat,
        "tools": None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        **token_names,
    }
    max_characters = _SPARE_CHARACTERS + 4 * num_characters
    return processes.render(source, max_characters, variables, Limits.for_chat(num_characters))


def parts(text: str) -> list[dict[str, str]]:
    """Return content as the list of parts that some multimodal templates insist on."""
    return [{"type": "text", "text": text}]
