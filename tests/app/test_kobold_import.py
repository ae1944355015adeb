"""Stories of KoboldCpp (KoboldAI Lite), reduced to what matters.

Fields as LostRuins/lite.koboldai.net (index.html) writes them: generate_savefile and kai_json_load, the placeholders of
instruct mode, `altbranches` as clone_new_branch fills it, marks of pictures as generate_savefile takes them out.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.archive import ArchivedChat
from app.chat_import import read_chats
from app.imported_parts import left_out_words

STORY: dict[str, Any] = {
    "gamestarted": True,
    "prompt": "",
    "memory": "",
    "authorsnote": "",
    "anotetemplate": "",
    "actions": [],
    "actions_metadata": {},
    "worldinfo": [],
}
INSTRUCT = {
    **STORY,
    "prompt": "\n{{[INPUT]}}\nOf mills?\n{{[OUTPUT]}}\n",
    "actions": ["They grind.", "\n{{[INPUT]}}\nAnd rivers?\n{{[INPUT_END]}}\n{{[OUTPUT]}}\n", "They\n\nrun."],
    "memory": "Be brief.",
    "savedsettings": {"opmode": 4, "instruct_starttag": "\\n### Instruction:\\n"},
}
TURNS = [("user", "Of mills?"), ("assistant", "They grind."), ("user", "And rivers?"), ("assistant", "They\n\nrun.")]


def read(content: dict[str, Any]) -> list[ArchivedChat]:
    return read_chats("saved_story.json", json.dumps(content))


def turns(chat: ArchivedChat) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in chat.shown]


@pytest.mark.parametrize("settings", [INSTRUCT["savedsettings"], None])
def test_a_story_of_instructions_becomes_a_chat_with_its_memory_as_system_prompt(settings: object) -> None:
    (chat,) = read({**INSTRUCT, "savedsettings": settings})
    assert (chat.title, chat.kind, turns(chat)) == ("saved story", "chat", TURNS)
    assert json.loads(chat.settings) == {"system_prompt": "Be brief."}
    assert chat.left_out == ()


def test_marks_of_the_persons_own_are_known_from_the_settings() -> None:
    settings = {
        "opmode": 4,
        "instruct_starttag": "<|im_start|>user\\n",
        "instruct_starttag_end": "<|im_end|>\\n",
        "instruct_endtag": "<|im_start|>assistant\\n",
        "instruct_systag": "<|im_start|>system\\n",
    }
    text = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello"
    (chat,) = read({**STORY, "prompt": text, "savedsettings": settings})
    assert turns(chat) == [("user", "Hi"), ("assistant", "Hello")]
    assert json.loads(chat.settings) == {"system_prompt": "Be kind."}


def test_a_chat_of_names_becomes_turns_and_several_others_keep_theirs() -> None:
    settings = {"opmode": 3, "chatname": "Me", "chatopponent": "Bob||$||Alice"}
    story = {**STORY, "prompt": "Bob: Hello!", "actions": ["\nMe: Who is here: you?", "\nAlice: I.\nStill I."]}
    (chat,) = read({**story, "savedsettings": settings})
    assert turns(chat) == [
        ("assistant", "Bob: Hello!"),
        ("user", "Who is here: you?"),
        ("assistant", "Alice: I.\nStill I."),
    ]
    (chat,) = read({**story, "savedsettings": {**settings, "chatopponent": "Bob"}})
    assert turns(chat)[0] == ("assistant", "Hello!")


def test_branches_share_what_they_begin_with_and_the_open_one_is_on_screen() -> None:
    other = [INSTRUCT["prompt"], "They turn.", "\n{{[INPUT]}}\nWhy?\n{{[OUTPUT]}}\n", "Water."]
    (chat,) = read({**INSTRUCT, "altbranches": [other, None]})
    assert turns(chat) == TURNS
    assert [message.text for message in chat.messages if message.follows == 0] == ["They grind.", "They turn."]
    assert sum(message.text == "Of mills?" for message in chat.messages) == 1
    assert chat.messages[-1].text == "Water."


@pytest.mark.parametrize("settings", [{"opmode": 1}, {"opmode": 2}, None])
def test_a_story_becomes_a_notebook_letter_by_letter_and_what_has_no_place_is_counted(settings: object) -> None:
    story = {
        **STORY,
        "prompt": "  Once\n\n> look\n",
        "actions": [" upon[<|p|data|p|>] a", " time. "],
        "memory": "A tale.",
        "authorsnote": "Dark.",
        "worldinfo": [{"key": "mill"}, {"key": "river"}],
        "savedsettings": settings,
        "altbranches": [None, ["  Once", " more."]],
    }
    book, branch = read(story)
    assert (book.kind, branch.kind) == ("notebook", "notebook")
    assert turns(book) == [("assistant", "  Once\n\n> look\n upon a time. ")]
    assert (branch.title, turns(branch)) == ("saved story (branch 2)", [("assistant", "  Once more.")])
    assert set(left_out_words([book, branch]).split(", ")) == {
        "1 picture",
        "2 entries of world info",
        "1 author's note",
        "1 memory",
    }
