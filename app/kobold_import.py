"""Stories as KoboldCpp (KoboldAI Lite) saves them: one running text in pieces, with marks or names where turns begin.

In instruct and chat mode the turns become messages, and a saved branch a branch. A story or an adventure is a text that
goes on: it becomes a notebook, and each of its branches another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from app.archive import BEGINNING, ArchivedChat, ArchivedMessage
from app.imported_parts import LeftOutCount, dict_of, list_of, text_of
from app.input_rules import clean_text

Json = dict[str, Any]

_CHAT, _INSTRUCT = 3, 4
_Role = Literal["user", "assistant", "system"]
_Turn = tuple[_Role, str]
_MARKS: dict[str, _Role] = {
    "{{[INPUT]}}": "user",
    "{{[OUTPUT]}}": "assistant",
    "{{[SYSTEM]}}": "system",
}
_TAGS: dict[str, _Role] = {"starttag": "user", "endtag": "assistant", "systag": "system"}
"""Settings with the marks that stand in the text instead, if the person wants to see those."""

_ENDS = re.compile(r"\n?\{\{\[(?:INPUT|OUTPUT|SYSTEM)_END\]\}\}\n?")
_PICTURE = re.compile(r"\[<\|([ph])\|.+?\|\1\|>\]", re.DOTALL)
_NAMES_BETWEEN = "||$||"


def is_kobold(content: object) -> bool:
    """Tell whether this is a saved story."""
    story = dict_of(content)
    return isinstance(story.get("actions"), list) and isinstance(story.get("prompt"), str)


def from_kobold(title: str, story: Json) -> list[ArchivedChat]:
    """Read {"prompt", "actions": [...], "memory", "savedsettings": {"opmode", ...}, "altbranches": [...], ...}."""
    left_out = LeftOutCount()
    branches = [[text_of(story["prompt"]), *map(text_of, story["actions"])]]
    branches += [[*map(text_of, branch)] for branch in map(list_of, list_of(story.get("altbranches"))) if branch]
    texts = [_without_pictures("".join(branch), left_out) for branch in branches]
    settings = dict_of(story.get("savedsettings"))
    turns = [_turns(text, settings) for text in texts]
    memory = clean_text(text_of(story.get("memory")))
    left_out.add("entry of world info", "entries of world info", len(list_of(story.get("worldinfo"))))
    left_out.add("author's note", count=bool(text_of(story.get("authorsnote"))))
    left_out.add("text of a document database", "", bool(story.get("documentdb_data")))
    if turns[0] is not None:
        chat = _chat(title, [branch or [] for branch in turns], memory)
        return [replace(chat, left_out=left_out.all())]
    left_out.add("memory", "memories", bool(memory))
    books = [
        ArchivedChat(title if number == 1 else f"{title} (branch {number})", _document(text), kind="notebook")
        for number, text in enumerate(texts, start=1)
    ]
    return [replace(books[0], left_out=left_out.all()), *books[1:]]


def _document(text: str) -> tuple[ArchivedMessage, ...]:
    return (ArchivedMessage("assistant", clean_text(text)),) if text else ()


def _without_pictures(text: str, left_out: LeftOutCount) -> str:
    text, count = _PICTURE.subn("", text)
    left_out.add("picture", count=count)
    return text


def _turns(text: str, settings: Json) -> list[_Turn] | None:
    """Return the turns of a text; None if it is a story."""
    mode = settings.get("opmode")
    if mode == _CHAT:
        return list(_named_turns(text, settings))
    if any(mark in text for mark in _MARKS):
        return list(_marked_turns(_ENDS.sub("", text), _MARKS))
    if mode != _INSTRUCT:
        return None
    marks = {tag: role for name, role in _TAGS.items() if (tag := _tag(settings, name))}
    for name in _TAGS:
        if end := _tag(settings, f"{name}_end"):
            text = text.replace(end, "")
    return list(_marked_turns(text, marks))


def _tag(settings: Json, name: str) -> str:
    return text_of(settings.get(f"instruct_{name}")).replace("\\n", "\n").strip()


def _marked_turns(text: str, marks: dict[str, _Role]) -> Iterator[_Turn]:
    role: _Role = "assistant"  # what stands before any mark is the model's greeting
    longest_first = sorted(marks, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first)) or "(?!)"
    for part in re.split(f"({pattern})", text):
        if part in marks:
            role = marks[part]
        elif part.strip():
            yield role, part.strip("\n")


def _named_turns(text: str, settings: Json) -> Iterator[_Turn]:
    """Yield the turns of a chat, each of which begins with a name at the start of a line."""
    person = text_of(settings.get("chatname")) or "User"
    others = [name for name in text_of(settings.get("chatopponent")).split(_NAMES_BETWEEN) if name]
    names = "|".join(map(re.escape, sorted((person, *others), key=len, reverse=True)))
    name = ""
    for number, part in enumerate(re.split(rf"^({names}): ?", text, flags=re.MULTILINE)):
        if number % 2:
            name = part
        elif part.strip():
            said = part.strip("\n")
            is_one_of_several = len(others) > 1 and name and name != person
            yield "user" if name == person else "assistant", f"{name}: {said}" if is_one_of_several else said


def _chat(title: str, branches: Sequence[list[_Turn]], memory: str) -> ArchivedChat:
    """Return branches as one tree; what they begin with alike is there once."""
    messages: list[ArchivedMessage] = []
    known: dict[tuple[int, _Turn], int] = {}
    system = [memory] if memory else []
    leaf = BEGINNING
    for branch in branches:
        place = BEGINNING
        for role, text in branch:
            if role == "system":
                system += [text] if text not in system else []
                continue
            key = (place, (role, text))
            if key not in known:
                known[key] = len(messages)
                messages.append(ArchivedMessage(role, clean_text(text), follows=place))
            place = known[key]
        leaf = place if leaf == BEGINNING else leaf
    prompt = clean_text("\n\n".join(system))
    return ArchivedChat(
        title,
        tuple(messages),
        leaf=None if leaf in (BEGINNING, len(messages) - 1) else leaf,
        settings=json.dumps({"system_prompt": prompt}) if prompt else "",
    )
