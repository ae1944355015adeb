"""Chats become the text that transformers makes of them; what a template may cost and touch is bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.errors import BadRequestError, ModelFileError, RingsideError
from backends.requests import Message
from models.chat_template import ChatTemplate, find_templates
from models.model_files import ModelFiles
from models.templates.sandbox import CompiledTemplate
from models.vocabulary import build_tokenizer
from tests.models.templates import (
    CHATML,
    GEMMA2,
    LLAMA2,
    NO_SYSTEM_NO_COMPLAINT,
    PARTS_ONLY,
    TEMPLATES,
    THINKING,
)
from tests.models.tiny_tokenizers import (
    BOS,
    EOS,
    byte_level_vocabulary,
    sentencepiece_vocabulary,
    write_folder,
    write_vocabulary_gguf,
)

NAMES = {"bos_token": BOS, "eos_token": EOS}
SYSTEM = Message("system", "Be brief.")
CHATS: dict[str, list[Message]] = {
    "one turn": [Message("user", "hello <b> é")],
    "with system": [SYSTEM, Message("user", "  hi \n")],
    "three turns": [
        SYSTEM,
        Message("user", "hi there"),
        Message("assistant", "Hello! <think>x</think> yes "),
        Message("user", "and {{ this }} {% raw %}"),
    ],
}


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "the test", NAMES)


@pytest.fixture(scope="module")
def transformers_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("folder")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **NAMES}
    write_folder(folder, build_tokenizer(byte_level_vocabulary()), tokenizer_config__json=settings)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("chat", CHATS.values(), ids=CHATS)
@pytest.mark.parametrize("opens_reply", [True, False])
def test_text_is_what_transformers_writes(
    source: str, chat: list[Message], opens_reply: bool, transformers_tokenizer: Any
) -> None:
    dicts = [{"role": message.role, "content": message.text} for message in chat]
    expected = transformers_tokenizer.apply_chat_template(
        dicts, chat_template=source, tokenize=False, add_generation_prompt=opens_reply
    )
    rendered = CompiledTemplate(source).render(
        1_000_000, messages=dicts, tools=None, documents=None, add_generation_prompt=opens_reply, **NAMES
    )
    assert rendered == expected
    ours = template(source)
    if ours.has_system_role or chat[0].role != "system":
        assert ours.render(chat, add_generation_prompt=opens_reply) == expected


def test_a_template_without_system_role_gets_the_system_text_before_the_first_user_message() -> None:
    for source in (GEMMA2, NO_SYSTEM_NO_COMPLAINT):
        refusing = template(source)
        assert not refusing.has_system_role
        folded = [Message("user", "Be brief.\n\nhi there"), *CHATS["three turns"][2:]]
        assert refusing.render(CHATS["three turns"]) == refusing.render(folded)
        assert "Be brief." in refusing.render([SYSTEM])


def test_turns_that_do_not_alternate_are_joined_where_the_template_insists() -> None:
    chat = [Message("user", "a"), Message("user", "b"), Message("assistant", "c"), Message("assistant", "d")]
    assert template(GEMMA2).render([*chat, Message("user", "e")]) == (
        f"{BOS}<start_of_turn>user\na\n\nb<end_of_turn>\n<start_of_turn>model\nc\n\nd<end_of_turn>\n"
        "<start_of_turn>user\ne<end_of_turn>\n<start_of_turn>model\n"
    )
    assert template(CHATML).render(chat[:2], add_generation_prompt=False).count("<|im_start|>user") == 2


def test_a_chat_that_begins_with_the_assistant_gets_an_empty_user_turn_where_the_template_insists() -> None:
    text = template(GEMMA2).render([Message("assistant", "Welcome."), Message("user", "hi")])
    assert text.startswith(f"{BOS}<start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\nWelcome.<end_of_turn>")


@pytest.mark.parametrize(
    ("source", "opening"), [(THINKING, "<think>"), (CHATML, ""), ("{{ raise_exception('no') }}", "")]
)
def test_a_template_tells_whether_it_opens_the_reasoning(source: str, opening: str) -> None:
    assert template(source).reasoning_opening == opening


def test_channels_of_an_earlier_reply_are_taken_apart_for_the_template_and_think_marks_left_to_it() -> None:
    source = """{% for m in messages %}{% if "<|channel|>" in m.content %}{{ raise_exception("channels") }}{% endif %}
    {%- if m.thinking is defined %}({{ m.thinking }}){% endif %}[{{ m.content }}]{% endfor %}"""
    channels = "<|channel|>analysis<|message|>why<|start|>assistant<|channel|>final<|message|>so"
    chat = [Message("user", "ask"), Message("assistant", channels), Message("user", "more")]
    assert template(source).render(chat) == "[ask](why)[so][more]"
    chat[1] = Message("assistant", "<think>why</think>so")
    assert template(source).render(chat) == "[ask][<think>why</think>so][more]"


def test_a_template_that_wants_parts_gets_parts() -> None:
    assert template(PARTS_ONLY).render(CHATS["with system"]) == "system: Be brief.;user:   hi \n;"


@pytest.mark.parametrize("source", [CHATML, GEMMA2, LLAMA2, THINKING])
def test_a_continued_reply_ends_exactly_at_its_text_after_the_opening_the_model_saw(source: str) -> None:
    chat = [Message("user", "tell"), Message("assistant", " Once upon a </think> ti ")]
    opened = template(source).render(chat[:1])
    assert template(source).render(chat, continue_last=True) == opened + chat[1].text


def test_one_of_several_templates_is_chosen_by_its_name(tmp_path: Path) -> None:
    entries = [{"name": "default", "template": "A{{ messages }}"}, {"name": "tool_use", "template": "B{{ messages }}"}]
    write_folder(tmp_path, build_tokenizer(byte_level_vocabulary()), tokenizer_config__json={"chat_template": entries})
    found = [find(tmp_path, override) for override in (None, "tool_use", "C{{ messages }}")]
    assert [template.source[0] for template in found if template is not None] == ["A", "B", "C"]
    with pytest.raises(ModelFileError, match="no chat template named 'tools'"):
        find(tmp_path, "tools")


def find(path: Path, override: str | None = None) -> ChatTemplate | None:
    return ChatTemplate.find(ModelFiles.open(path), override)


NAMED = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D{{ messages[0].content }}"}]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"chat_template__jinja": "J{{ messages[0].content }}"}, "Jx"),
        (
            {
                "chat_template__jinja": "J{{ messages[0].content }}",
                "tokenizer_config__json": {"chat_template": "C{{ messages[0].content }}"},
            },
            "Jx",
        ),
        ({"tokenizer_config__json": {"chat_template": "C{{ bos_token }}{{ messages[0].content }}"}}, "Cx"),
        ({"tokenizer_config__json": {"chat_template": "{{ bos_token }}", "bos_token": {"content": "<b>"}}}, "<b>"),
        ({"tokenizer_config__json": {"chat_template": NAMED}}, "Dx"),
        ({"tokenizer_config__json": {"chat_template": NAMED[:1]}}, "T"),
        ({"chat_template__json": {"chat_template": "P{{ messages[0].content }}"}}, "Px"),
        ({"tokenizer_config__json": {"chat_template": None}}, None),
        ({"tokenizer_config__json": {"chat_template": "  \n"}}, None),
        ({}, None),
    ],
    ids=[
        "file alone",
        "file before config",
        "config",
        "token given as an object",
        "named default",
        "named without default",
        "processor file",
        "null",
        "blank",
        "base model",
    ],
)
def test_a_folder_s_template_is_found_where_it_lives(
    files: dict[str, Any], expected: str | None, tmp_path: Path
) -> None:
    found = find(write_folder(tmp_path, build_tokenizer(byte_level_vocabulary()), **files))
    assert (found and found.render([Message("user", "x")])) == expected


def test_a_gguf_file_s_template_is_found_with_its_named_ones_and_tokens(tmp_path: Path) -> None:
    key = "tokenizer.chat_template"
    metadata = {key: "{{ bos_token }}G{{ messages[0].content }}", f"{key}.tool_use": "T"}
    path = write_vocabulary_gguf(tmp_path / "model.gguf", sentencepiece_vocabulary(), **metadata)
    found = find(path)
    assert found is not None
    assert found.render([Message("user", "x")]) == f"{BOS}Gx"
    assert find_templates(ModelFiles.open(path))["tool_use"] == "T"
    assert find(write_vocabulary_gguf(tmp_path / "base.gguf", sentencepiece_vocabulary())) is None


def test_a_template_given_by_hand_comes_first(tmp_path: Path) -> None:
    path = write_vocabulary_gguf(tmp_path / "base.gguf", sentencepiece_vocabulary())
    found = find(path, "hand:{{ messages[0].content }}{{ eos_token }}")
    assert found is not None
    assert found.render([Message("user", "x")]) == f"hand:x{EOS}"


@pytest.mark.real_model
def test_the_real_models_have_the_templates_their_makers_gave_them(gemma_path: Path, smollm2_path: Path) -> None:
    assert find(gemma_path) is None
    smollm2 = find(smollm2_path)
    assert smollm2 is not None
    assert smollm2.render([SYSTEM, Message("user", "hi")]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_broken_template_is_refused_with_its_file_and_line(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, None, chat_template__jinja="{{ bos_token }}\n{% if %}", tokenizer__json="{}")
    with pytest.raises(ModelFileError) as caught:
        find(folder)
    assert str(tmp_path) in str(caught.value)
    assert "broken at line 2" in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.nothing.at_all }}",
        "{{ missing_function() }}",
        "{{ 1 / 0 }}",
        "{{ raise_exception('no chat today') }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% include 'secrets' %}",
    ],
)
def test_a_template_that_fails_or_reaches_too_far_gives_one_displayable_sentence(source: str) -> None:
    with pytest.raises(RingsideError, match="The chat template of the test") as caught:
        template(source).render(CHATS["one turn"])
    assert isinstance(caught.value, BadRequestError)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ messages[0].content * 100 }}{% endfor %}",
        "{{ 'x' * 10**9 }}",
        "{{ ['x'] * 10**9 }}",
        "{{ 10**(10**9) }}",
        "{% set ns = namespace(x='xx') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='xx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    ],
)
def test_a_template_that_would_never_end_or_fill_the_memory_is_stopped(source: str) -> None:
    with pytest.raises(BadRequestError, match=r"it (loops|writes|multiplies|raises)"):
        template(source).render(CHATS["one turn"])


def test_a_long_chat_stays_within_the_limits() -> None:
    chat = [Message("user" if turn % 2 == 0 else "assistant", f"{turn} " * 500) for turn in range(1_001)]
    assert len(template(GEMMA2).render(chat)) > 1_001 * 1_000
