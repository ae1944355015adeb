"""Files of other programs with anything in place of anything: read as far as they go, or refused in one sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.archive import BEGINNING
from app.chat_import import read_chats
from app.chat_json import from_file, to_file
from backends.errors import BadRequestError
from tests.app.test_chatgpt_import import BRANCHED
from tests.app.test_chatgpt_import import node as chatgpt_node
from tests.app.test_kobold_import import INSTRUCT
from tests.app.test_lm_studio_import import block, entry, multi, single, text
from tests.app.test_silly_tavern_import import HEADER, line

SWIPED = line("Alice", "b", swipes=["a", "b"], swipe_id=1, swipe_info=[{"send_date": "1", "extra": {}}], send_date="2")
LM_STUDIO = {
    "name": "x",
    "createdAt": 1,
    "lastUsedModel": {"identifier": "m"},
    "perChatPredictionConfig": {"fields": [{"key": "llm.prediction.systemPrompt", "value": "s"}]},
    "messages": [
        entry(single("user", text("q"))),
        entry(multi(block(text("t"), style={"type": "thinking"}), block(text("a"), genInfo={"identifier": "m"}))),
    ],
}
THOUGHTS = chatgpt_node("t", "q1", "assistant", {"thoughts": [{"summary": "s", "content": "c"}]}, "thoughts")
CHATGPT = {**BRANCHED, "mapping": {**BRANCHED["mapping"], "t": THOUGHTS}}
KOBOLD = {**INSTRUCT, "altbranches": [["a", "b"], None], "worldinfo": [{}]}
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [None, True, -1, 10**400, 1e300, "", "x", "{{[INPUT]}}", "9" * 400, "0001-01-01", [], {}, [[]], [5]]
    ),
    st.text(max_size=5),
)


def places(content: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children: Any = ()
    if isinstance(content, dict):
        children = content.items()
    elif isinstance(content, list):
        children = enumerate(content)
    for key, value in children:
        yield (*way, key)
        yield from places(value, (*way, key))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    content: Any = copy.deepcopy(draw(st.sampled_from([[CHATGPT], [HEADER, SWIPED, SWIPED], LM_STUDIO, KOBOLD])))
    is_lines = isinstance(content, list) and content[0] == HEADER
    for way in draw(st.lists(st.sampled_from(list(places(content))), min_size=1, max_size=4)):
        at = content
        try:
            for key in way[:-1]:
                at = at[key]
            at[way[-1]] = copy.deepcopy(draw(VALUES))
        except (TypeError, KeyError, IndexError):
            continue  # what was there has been replaced
    return "\n".join(map(json.dumps, content)) if is_lines else json.dumps(content)


@given(damaged())
def test_a_damaged_file_is_read_or_refused_in_a_sentence(content: str) -> None:
    try:
        chats = read_chats("a.json", content)
    except BadRequestError:
        return
    for chat in chats:
        for place, message in enumerate(chat.messages):
            assert message.follows is None or BEGINNING <= message.follows < place
        assert chat.leaf is None or 0 <= chat.leaf < len(chat.messages)
    assert len(from_file(json.loads("".join(to_file(chats))))) == len(chats)
