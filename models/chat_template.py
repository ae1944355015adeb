"""The text a chat becomes for one model: its own template, or one given by hand, rendered as transformers renders it.

Knows text only; tokens are `models.prompt`. A template is a program of someone else's: it runs in a process of its own,
see `models.templates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from backends.errors import BadRequestError, ModelFileError
from backends.requests import Message
from models.gguf_reader import GgufFile
from models.model_files import ModelFiles
from models.reasoning import CHANNEL_STARTS, opening_of, split
from models.templates.process import BrokenTemplate, TemplateFailure, TemplateRefusal
from models.templates.traits import MAX_SOURCE_CHARACTERS, parts, rendered, traits_of
from models.token_names import folder_token_names, gguf_token_names, read_json

_BETWEEN_MERGED = "\n\n"


class ChatTemplate:
    """A template with the special tokens it names.

    Attributes:
        source: its Jinja text.
        origin: where it came from, for messages.
        has_system_role: whether a system message appears in what it writes.
    """

    def __init__(self, source: str, origin: str, token_names: dict[str, str]) -> None:
        """Find out what a template can say.

        Raises:
            ModelFileError: it is not a valid template.
            BadRequestError: it runs for too long or needs too much memory.
        """
        self.source = source
        self.origin = origin
        self._token_names = token_names
        traits = traits_of(source, tuple(token_names.items()))
        if isinstance(traits, BrokenTemplate):
            raise ModelFileError(
                f"The chat template of {origin} is broken at line {traits.line}: {traits.reason}",
                "Correct it, or give another one by hand.",
            )
        if isinstance(traits, TemplateFailure):
            raise BadRequestError(
                f"The chat template of {origin} cannot be used: {traits.reason}.", "Give another one by hand."
            )
        self._takes_parts = traits.takes_parts
        self.has_system_role = traits.has_system_role

    @classmethod
    def find(cls, files: ModelFiles, override: str | None = None) -> ChatTemplate | None:
        """Return a model's template, or None for a base model, which only continues text.

        Looked for in this order: one given by hand; in a folder, `chat_template.jinja`, `tokenizer_config.json`,
        `chat_template.json`; in a GGUF file, `tokenizer.chat_template`. Of several named ones it is "default".

        Args:
            files: the model.
            override: Jinja text given by hand, or the name of one of the model's own templates.

        Raises:
            ModelFileError: the template found is broken, or the model has none of that name.
            BadRequestError: it runs for too long or needs too much memory.
        """
        source = find_source(files, override)
        if source is None:
            return None
        names = folder_token_names(files.path) if files.gguf is None else gguf_token_names(files.gguf)
        return cls(source, "these settings" if override else str(files.path), names)

    @property
    def reasoning_opening(self) -> str:
        """The mark of reasoning that a prompt ends with, so that the reply lacks it; empty for none."""
        try:
            return opening_of(self.render([Message("user", "?")]))
        except BadRequestError:
            return ""

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, continue_last: bool = False
    ) -> str:
        """Return the chat as text.

        Where the template has no system role, the system text goes before the first user message; where it insists on
        turns that alternate, neighbours of one role are joined.

        Args:
            messages: oldest first.
            add_generation_prompt: open the assistant's turn at the end.
            continue_last: the last message is the assistant's and is to be continued: the text ends exactly where it
                ends, after the opening that the model saw when it wrote it.

        Raises:
            BadRequestError: the template refuses these messages, or does not come to an end.
        """
        if continue_last and messages and messages[-1].role == "assistant":
            return self.render(messages[:-1], add_generation_prompt=True) + messages[-1].text
        if not self.has_system_role:
            messages = fold_system(messages)
        try:
            return self._write(messages, add_generation_prompt)
        except TemplateRefusal as error:
            repaired = alternating(messages)
            if repaired == list(messages):
                raise self._refusal(error) from error
        except TemplateFailure as error:
            raise self._refusal(error) from error
        try:
            return self._write(repaired, add_generation_prompt)
        except TemplateFailure as error:
            raise self._refusal(error) from error

    def _write(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        dicts = [self._turn(each) for each in messages]
        num_characters = sum(len(each.text) for each in messages)
        return rendered(self.source, self._token_names, dicts, add_generation_prompt, num_characters)

    def _turn(self, message: Message) -> dict[str, object]:
        """Return a message as templates want it: think marks stay in the text, which templates cut out themselves, but
        they refuse gpt-oss's channels there and want the reasoning beside it."""
        text, reasoning = message.text, {}
        if message.role == "assistant" and text.lstrip().startswith(CHANNEL_STARTS):
            said = split(text)
            text, reasoning = said.answer, {"thinking": said.reasoning, "reasoning_content": said.reasoning}
        return {"role": message.role, "content": parts(text) if self._takes_parts else text, **reasoning}

    def _refusal(self, error: TemplateFailure) -> BadRequestError:
        return BadRequestError(
            f"The chat template of {self.origin} does not take this chat: {error.reason.rstrip('.')}.",
            "Edit the chat, or give another template by hand.",
        )


def find_source(files: ModelFiles, override: str | None = None) -> str | None:
    """Return the text of the template that `ChatTemplate.find` takes, without running it; None for a base model.

    Raises:
        ModelFileError: the model has none of that name, or a file that should hold them cannot be read.
    """
    named = find_templates(files)
    if override:
        return _chosen(override, named)
    return named.get("default") or next(iter(named.values()), None)


def is_source(override: str) -> bool:
    """Tell Jinja text from the name of one of a model's own templates."""
    return "{" in override


def _chosen(override: str, named: Mapping[str, str]) -> str:
    """Return the template that a person names or wrote: text without any Jinja in it can only be a name."""
    if override.strip() in named:
        return named[override.strip()]
    if is_source(override):
        return override
    known = f"one of {', '.join(named)}" if named else "Jinja text"
    raise ModelFileError(f"The model has no chat template named {override.strip()[:60]!r}.", f"Give {known}.")


def find_templates(files: ModelFiles) -> dict[str, str]:
    """Return every template a model brings, by name, in order of precedence; empty for a base model.

    Raises:
        ModelFileError: a file that should hold them cannot be read.
    """
    named = _folder_templates(files.path) if files.gguf is None else _gguf_templates(files.gguf)
    return {name: source for name, source in named.items() if source.strip()}


def _folder_templates(folder: Path) -> dict[str, str]:
    beside = {path.stem: _read_text(path) for path in sorted(folder.glob("additional_chat_templates/*.jinja"))}
    own = folder / "chat_template.jinja"
    if own.is_file():
        return {"default": _read_text(own)} | beside
    for name in ("tokenizer_config.json", "chat_template.json"):
        match read_json(folder / name).get("chat_template"):
            case str(source):
                return {"default": source} | beside
            case list(entries):
                return {str(entry["name"]): str(entry["template"]) for entry in entries if _is_named(entry)} | beside
            case _:
                pass
    return beside


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and {"name", "template"} <= entry.keys()


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > 4 * MAX_SOURCE_CHARACTERS:
            raise ValueError("it is far larger than a chat template")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}.", "Download it again.") from error


def _gguf_templates(gguf: GgufFile) -> dict[str, str]:
    key = "tokenizer.chat_template"
    named = {name[len(key) + 1 :]: str(gguf.metadata[name]) for name in gguf.metadata if name.startswith(f"{key}.")}
    return {"default": str(gguf.metadata[key])} | named if key in gguf.metadata else named


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """Put system texts in front of the user message that follows, for templates that know no system role."""
    folded: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "system":
            waiting.append(message.text)
        elif message.role == "user" and waiting:
            folded.append(replace(message, text=_BETWEEN_MERGED.join([*waiting, message.text])))
            waiting = []
        else:
            folded.append(message)
    return [*folded, Message("user", _BETWEEN_MERGED.join(waiting))] if waiting else folded


def alternating(messages: Sequence[Message]) -> list[Message]:
    """Join neighbours of one role, and let a user begin, for templates that insist on turns."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, joined[-1].text + _BETWEEN_MERGED + message.text)
        else:
            joined.append(message)
    first = next((place for place, message in enumerate(joined) if message.role != "system"), None)
    if first is not None and joined[first].role == "assistant":
        joined.insert(first, Message("user", ""))
    return joined
