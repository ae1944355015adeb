"""Chats as ChatGPT exports them (conversations.json): a tree of small messages, several of which make up one reply.

Thoughts, calls of tools, their results and pieces of the answer are nodes of their own. Here a reply is one message:
its thoughts as reasoning, its answers one after the other. Custom instructions become the system prompt; tools and
pictures have no place here and are counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from app.archive import BEGINNING, ArchivedChat, ArchivedMessage
from app.imported_parts import LeftOutCount, dict_of, from_the_roots, list_of, reply_text, text_of, timestamp_s
from app.input_rules import clean_text, title_from

Json = dict[str, Any]

_CITATION = re.compile("\ue200[^\ue201]*\ue201")
_TEXTUAL = ("text", "multimodal_text", "code")


def is_chatgpt(chat: object) -> bool:
    """Tell whether this is a conversation of an export."""
    return isinstance(chat, dict) and isinstance(chat.get("mapping"), dict)


def from_chatgpt(chat: Json) -> ArchivedChat:
    """Read {"title", "create_time", "update_time", "current_node", "mapping": {id: {"message", "parent"}}, ...}."""
    tree = _Tree(text_of(chat.get("default_model_slug")))
    nodes = {str(id_): dict_of(node) for id_, node in chat["mapping"].items()}
    parents = {id_: str(node.get("parent")) for id_, node in nodes.items()}
    for id_ in from_the_roots(parents):
        tree.add(id_, parents[id_], dict_of(nodes[id_].get("message")))
    tree.end(set(parents.values()))
    messages = tuple(draft.message() for draft in tree.drafts)
    leaf = tree.place_of(str(chat.get("current_node")), len(messages) - 1)
    first = next((message.text for message in messages if message.role == "user"), "")
    system = clean_text("\n\n".join(tree.instructions))
    return ArchivedChat(
        title=clean_text(text_of(chat.get("title"))) or title_from(first),
        messages=messages,
        leaf=None if leaf in (BEGINNING, len(messages) - 1) else leaf,
        pinned=chat.get("is_starred") is True or chat.get("pinned_time") is not None,
        created_at_s=timestamp_s(chat.get("create_time")),
        updated_at_s=timestamp_s(chat.get("update_time")),
        settings=json.dumps({"system_prompt": system}) if system else "",
        left_out=tree.left_out.all(),
    )


@dataclass
class _Draft:
    """A message that later nodes of the same turn may go on."""

    role: Literal["user", "assistant"]
    follows: int
    texts: list[str]
    thoughts: list[str] = field(default_factory=list)
    created_at_s: float = 0.0
    model_name: str = ""
    is_followed: bool = False

    def message(self) -> ArchivedMessage:
        return ArchivedMessage(
            self.role,
            clean_text(reply_text("\n\n".join(self.thoughts), "\n\n".join(self.texts))),
            follows=self.follows,
            created_at_s=self.created_at_s,
            model_name=clean_text(self.model_name),
        )


@dataclass(frozen=True)
class _Here:
    """Where a node of the tree stands: behind which message, as long as that was, with which thoughts since."""

    place: int = BEGINNING
    num_texts: int = 0
    num_thoughts: int = 0
    thoughts: tuple[str, ...] = ()


class _Tree:
    def __init__(self, default_model: str) -> None:
        self.drafts: list[_Draft] = []
        self.instructions: list[str] = []
        self.left_out = LeftOutCount()
        self._default_model = default_model
        self._here: dict[str, _Here] = {}

    def place_of(self, id_: str, otherwise: int) -> int:
        """Return the place of the message that a node belongs to."""
        return self._here[id_].place if id_ in self._here else otherwise

    def end(self, parents: set[str]) -> None:
        """Count the thoughts after which nothing was written, once all nodes are taken."""
        for id_, here in self._here.items():
            if id_ not in parents:
                self._unanswered(here)

    def _unanswered(self, here: _Here) -> None:
        self.left_out.add("thought without an answer", "thoughts without an answer", len(here.thoughts))

    def add(self, id_: str, parent: str, message: Json) -> None:
        """Take a node whose parent was taken before."""
        here = self._here.get(parent, _Here())
        content = dict_of(message.get("content"))
        read = self._readers().get(text_of(content.get("content_type")), _all_text)
        self._here[id_] = self._taken(here, message, read(content)) if content else here

    def _taken(self, here: _Here, message: Json, text: str) -> _Here:
        role, metadata = text_of(dict_of(message.get("author")).get("role")), dict_of(message.get("metadata"))
        kind = text_of(dict_of(message.get("content")).get("content_type"))
        self.left_out.add("attached file", count=len(list_of(metadata.get("attachments"))))
        if kind == "thoughts":
            return replace(here, thoughts=(*here.thoughts, text)) if text else here
        if not text.strip() or kind == "user_editable_context":
            return here
        if kind == "reasoning_recap":
            self.left_out.add("note on the time of thinking", "notes on the time of thinking")
        elif metadata.get("is_visually_hidden_from_conversation") is True or role == "system":
            self.left_out.add("hidden message")
        elif role == "tool":
            self.left_out.add("result of a tool", "results of tools")
        elif role == "assistant" and message.get("recipient", "all") != "all":
            self.left_out.add("call of a tool", "calls of tools")
        elif role == "assistant":
            return self._replied(here, message, text)
        elif role == "user":
            self._unanswered(here)
            return self._put(_Draft("user", here.place, [text], [], timestamp_s(message.get("create_time"))))
        else:
            self.left_out.add("message of another kind", "messages of other kinds")
        return here

    def _replied(self, here: _Here, message: Json, text: str) -> _Here:
        if here.place != BEGINNING and (before := self.drafts[here.place]).role == "assistant":
            so_far = before.texts[: here.num_texts], before.thoughts[: here.num_thoughts]
            if before.is_followed or so_far != (before.texts, before.thoughts):  # written again from here on: a variant
                texts, thoughts = so_far
                again = replace(before, texts=[*texts, text], thoughts=[*thoughts, *here.thoughts], is_followed=False)
                return self._put(again)
            before.texts.append(text)
            before.thoughts.extend(here.thoughts)
            return self._behind(here.place)
        model = text_of(dict_of(message.get("metadata")).get("model_slug")) or self._default_model
        time_s = timestamp_s(message.get("create_time"))
        return self._put(_Draft("assistant", here.place, [text], list(here.thoughts), time_s, model))

    def _put(self, draft: _Draft) -> _Here:
        if draft.follows != BEGINNING:
            self.drafts[draft.follows].is_followed = True
        self.drafts.append(draft)
        return self._behind(len(self.drafts) - 1)

    def _behind(self, place: int) -> _Here:
        return _Here(place, len(self.drafts[place].texts), len(self.drafts[place].thoughts))

    def _readers(self) -> dict[str, Callable[[Json], str]]:
        return {
            "thoughts": _thoughts,
            "user_editable_context": self._context,
            **dict.fromkeys(_TEXTUAL, self._parts),
        }

    def _context(self, content: Json) -> str:
        said = [text_of(content.get(name)) for name in ("user_profile", "user_instructions")]
        self.instructions += [each for each in said if each and each not in self.instructions]
        return ""

    def _parts(self, content: Json) -> str:
        texts = [text_of(content.get("text"))]
        for part in list_of(content.get("parts")):
            kind = text_of(dict_of(part).get("content_type"))
            if "image" in kind:
                self.left_out.add("picture")
            elif "audio" in kind and "text" not in dict_of(part):
                self.left_out.add("recording")
            texts.append(text_of(part) or text_of(dict_of(part).get("text")))
        text, num_citations = _CITATION.subn("", "\n".join(filter(None, texts)))
        self.left_out.add("citation", count=num_citations)
        if content.get("content_type") == "code":
            language = text_of(content.get("language"))
            return f"```{'' if language == 'unknown' else language}\n{text}\n```" if text else ""
        return text


def _thoughts(content: Json) -> str:
    thoughts = [dict_of(each) for each in list_of(content.get("thoughts"))]
    said = [text_of(each.get(name)) for each in thoughts for name in ("summary", "content")]
    return "\n\n".join(filter(None, said))


def _all_text(content: Json) -> str:
    texts = [text_of(content.get(name)) for name in ("text", "content", "result")]
    return "\n".join(filter(None, [*texts, *map(text_of, list_of(content.get("parts")))]))
