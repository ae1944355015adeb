"""Prompts: one BOS, replies as the ids they were, texts as they were typed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from backends.errors import BadRequestError
from backends.requests import Message
from models.chat_template import ChatTemplate
from models.control_text import ControlTexts, Disguise, template_markup
from models.prompt import build_prompt, num_before_last, text_of
from models.special_tokens import SpecialTokens
from models.tokenizer import TextTokenizer
from models.vocabulary import build_tokenizer
from tests.models.templates import CHATML, GEMMA2, LLAMA2, THINKING
from tests.models.tiny_tokenizers import BOS, EOS, byte_level_vocabulary, sentencepiece_vocabulary


def tokenizer_of(vocabulary: str, adds_bos: bool = True) -> TextTokenizer:
    made = {
        "byte-level": byte_level_vocabulary(),
        "llama": sentencepiece_vocabulary(adds_space_prefix=True),
        "gemma": sentencepiece_vocabulary(adds_space_prefix=False),
    }[vocabulary]
    return TextTokenizer(build_tokenizer(made), SpecialTokens(made.ids[BOS], (made.ids[EOS],), adds_bos))


BYTES, LLAMA, GEMMA = tokenizer_of("byte-level"), tokenizer_of("llama"), tokenizer_of("gemma")


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "the test", {"bos_token": BOS, "eos_token": EOS})


def prompt(messages: Sequence[Message], source: str | None, tokenizer: TextTokenizer = BYTES) -> list[int]:
    chat_template = None if source is None else template(source)
    return build_prompt(messages, chat_template, tokenizer.encode, tokenizer.bos_id, tokenizer.adds_bos)


def reply(ids: Sequence[int], tokenizer: TextTokenizer = BYTES) -> Message:
    return Message("assistant", tokenizer.decode(ids), tuple(ids))


WITH_BOS = "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
WITHOUT_BOS = WITH_BOS.removeprefix("{{ bos_token }}")
TURNS = [Message("user", "hi"), Message("assistant", "Hello."), Message("user", "more"), Message("assistant", "Yes.")]


@pytest.mark.parametrize(
    ("source", "adds_bos", "vocabulary"),
    [
        case
        for case in product((WITH_BOS, WITHOUT_BOS, None), (True, False), ("byte-level", "llama", "gemma"))
        if case[0] == WITH_BOS or case[1]
    ],
)
def test_one_bos_stands_first_and_no_other_anywhere(source: str | None, adds_bos: bool, vocabulary: str) -> None:
    tokenizer = tokenizer_of(vocabulary, adds_bos)
    for length in (1, 3):
        ids = prompt(TURNS[:length], source, tokenizer)
        assert ids[0] == tokenizer.bos_id
        assert ids.count(ids[0]) == 1


def test_no_bos_is_made_up_for_a_model_that_does_not_want_one() -> None:
    tokenizer = tokenizer_of("byte-level", adds_bos=False)
    assert tokenizer.bos_id not in prompt(TURNS[:3], WITHOUT_BOS, tokenizer)
    assert build_prompt(TURNS[:1], None, tokenizer.encode, None, True) == tokenizer.encode("hi")


@pytest.mark.parametrize(
    "source", [CHATML, GEMMA2, LLAMA2, THINKING, None], ids=["chatml", "gemma", "llama", "r1", "base"]
)
@pytest.mark.parametrize("tokenizer", [BYTES, LLAMA, GEMMA], ids=["byte-level", "llama", "gemma"])
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_stopped_reply_goes_on_from_the_very_ids_it_stopped_at(
    source: str | None, tokenizer: TextTokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(4, tokenizer.vocab_size - 1), min_size=1, max_size=20))
    cut = data.draw(st.integers(1, len(ids)))
    first = prompt([Message("user", "tell me")], source, tokenizer)
    assert prompt([Message("user", "tell me"), reply(ids[:cut], tokenizer)], source, tokenizer) == first + ids[:cut]


def test_a_later_turn_closes_a_stopped_one_as_the_template_closes_it() -> None:
    ids = BYTES.encode("the qui")
    messages = [Message("user", "tell me"), reply(ids), Message("user", "go on")]
    assert prompt(messages, CHATML) == [BYTES.bos_id, *BYTES.encode(template(CHATML).render(messages))]


def test_finished_replies_keep_their_ids_in_later_turns_where_the_template_keeps_their_text() -> None:
    odd = [BYTES.encode(letter)[0] for letter in "the quick"]  # one token a letter: not what tokenising would give
    assert odd != BYTES.encode("the quick")
    messages = [Message("user", "tell me"), reply(odd), Message("user", "go on")]
    ids = prompt(messages, CHATML)
    assert any(ids[start : start + len(odd)] == odd for start in range(len(ids)))
    assert ids[: len(prompt(messages[:2], CHATML))] == prompt(messages[:2], CHATML)


def test_a_reply_the_template_changes_is_tokenised_as_the_template_writes_it_and_the_others_keep_their_ids() -> None:
    kept, trimmed = [BYTES.encode(letter)[0] for letter in "the"], BYTES.encode(" the  ")
    messages = [Message("user", "a"), reply(trimmed), Message("user", "b"), reply(kept), Message("user", "c")]
    ids = prompt(messages, GEMMA2)
    assert BYTES.decode(ids) == BYTES.decode(BYTES.encode(template(GEMMA2).render(messages)))
    assert any(ids[start : start + 3] == kept for start in range(len(ids)))
    only_trimmed = messages[:3]
    assert prompt(only_trimmed, GEMMA2) == BYTES.encode(template(GEMMA2).render(only_trimmed))


def test_reasoning_that_the_template_drops_from_history_is_not_fed_back() -> None:
    ids = BYTES.encode("why</think> because")
    messages = [Message("user", "a"), reply(ids), Message("user", "b")]
    assert "why" not in BYTES.decode(prompt(messages, THINKING))
    assert prompt(messages[:2], THINKING)[-len(ids) :] == ids  # while it is being written it stays


def test_a_reply_that_contains_the_marker_or_template_code_is_harmless() -> None:
    for text in ("\ue0000\ue001", "\ue000\ue0001\ue001", "{{ messages }}{% for %}"):
        ids = BYTES.encode(text)
        messages = [Message("user", text), reply(ids), Message("user", text)]
        assert BYTES.decode(prompt(messages, CHATML)) == template(CHATML).render(messages)


def test_ids_that_say_more_than_the_text_give_way_to_it_and_a_cut_character_does_not_count_as_more() -> None:
    said = BYTES.encode("the end STOP")
    cut = [Message("user", "a"), Message("assistant", "the end ", tuple(said)), Message("user", "b")]
    ids = build_prompt(cut, template(CHATML), BYTES.encode, BYTES.bos_id, True, BYTES.decode)
    assert "STOP" not in BYTES.decode(ids)
    half = BYTES.encode("yes 😀")[:-1]
    for text in ("yes ", "yes \ufffd"):
        going_on = [Message("user", "a"), Message("assistant", text, tuple(half))]
        ids = build_prompt(going_on, template(CHATML), BYTES.encode, BYTES.bos_id, True, BYTES.decode)
        assert ids[-len(half) :] == half
    spaced = LLAMA.encode("world")
    going_on = [Message("user", "Hello"), Message("assistant", " world", tuple(spaced))]
    assert build_prompt(going_on, None, LLAMA.encode, 1, True, LLAMA.decode)[-len(spaced) :] == spaced


def test_a_base_model_sees_the_texts_one_after_the_other() -> None:
    ids = BYTES.encode(" time there was")
    chat = [Message("user", "Once upon a"), reply(ids)]
    assert BYTES.decode(prompt(chat, None)) == "Once upon a time there was"
    assert prompt(chat, None)[-len(ids) :] == ids
    longer = [*chat, Message("user", "  And then")]
    assert BYTES.decode(prompt(longer, None)) == "Once upon a time there was\n\n  And then"
    assert BYTES.decode(prompt([Message("system", "A tale."), *chat[:1]], None)) == "A tale.\n\nOnce upon a"


def test_no_space_is_put_in_front_of_text_that_follows_a_reply() -> None:
    chat = [Message("user", "Hello"), reply(LLAMA.encode("world"), LLAMA), Message("user", "the dog")]
    text = LLAMA.decode(prompt(chat, None, LLAMA))
    assert text == "Hello world\n\nthe dog"


def test_an_empty_prompt_is_the_token_that_begins_a_text() -> None:
    for messages in ([], [Message("user", "")]):
        assert prompt(messages, None) == [BYTES.bos_id]


def test_half_characters_from_json_become_replacement_characters() -> None:
    assert BYTES.decode(prompt([Message("user", "a\ud83d b \ud83d\ude00")], None)) == "a\ufffd b 😀"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "one"}], "one"),
        ([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}], "one two"),
        (["one", {"type": "text", "text": " two"}], "one two"),
    ],
)
def test_content_in_parts_gives_the_prompt_of_the_plain_text(content: object, text: str) -> None:
    assert text_of(content) == text
    assert prompt([Message("user", text_of(content))], CHATML) == prompt([Message("user", text)], CHATML)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([{"type": "image_url", "image_url": {"url": "x"}}], "'image_url'"),
        ([{"text": "untyped"}], "has no type"),
        ({"text": "a table"}, "a dict"),
        (7, "an int|a int"),
    ],
)
def test_content_that_is_not_text_is_refused_by_name(content: object, said: str) -> None:
    with pytest.raises(BadRequestError, match=said):
        text_of(content)


@pytest.mark.parametrize("source", [CHATML, GEMMA2, None], ids=["chatml", "gemma", "base"])
def test_a_reply_that_a_person_wrote_in_keeps_its_ids_around_what_was_typed(source: str | None) -> None:
    first, last = BYTES.encode("Once upo"), BYTES.encode("wn hill")
    mended = Message("assistant", "Once upon a towwn hill", pieces=(tuple(first), "n a tow", tuple(last)))
    ids = prompt([Message("user", "Tell."), mended], source)
    assert ids[-len(last) :] == last
    typed = BYTES.encode("n a tow")
    assert ids[-len(last) - len(typed) : -len(last)] == typed
    assert ids[-len(last) - len(typed) - len(first) : -len(last) - len(typed)] == first
    assert mended.num_drawn_tokens == len(first) + len(last)


def test_raw_texts_follow_each_other_with_nothing_between_whatever_the_template() -> None:
    messages = [Message("user", "<|im_sta"), Message("assistant", "one", (7, 8)), Message("user", "two")]
    ids = build_prompt(messages, template(CHATML), BYTES.encode, BYTES.bos_id, True, raw=True)
    assert ids == [BYTES.bos_id, *BYTES.encode("<|im_sta"), 7, 8, *BYTES.encode("two")]


TURNED = (
    "{% for m in messages %}{{ bos_token if loop.first }}<|turn|>{{ m.role }}\n{{ m.content }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
SPELLINGS = ["<s>", "</s>", "<|turn|>", "<", "<|", "turn|>", "s>", "hi there", " ", "\n", "\U000f0000", "\ue0000\ue001"]
typed_texts = st.lists(st.sampled_from(SPELLINGS), max_size=6).map("".join)


def guarded(messages: Sequence[Message], source: str, tokenizer: TextTokenizer) -> list[int]:
    control_texts = ControlTexts(tokenizer.control_texts)
    bos_id, adds_bos = tokenizer.bos_id, tokenizer.adds_bos
    return build_prompt(messages, template(source), tokenizer.encode, bos_id, adds_bos, control_texts=control_texts)


def controls(ids: Sequence[int], tokenizer: TextTokenizer) -> list[int]:
    return [token for token in ids if not tokenizer.pieces[token]]


@pytest.mark.parametrize("source", [TURNED, LLAMA2, GEMMA2, THINKING], ids=["turned", "llama", "gemma", "r1"])
@pytest.mark.parametrize("tokenizer", [BYTES, LLAMA, GEMMA], ids=["byte-level", "llama", "gemma"])
@given(system=typed_texts, user=typed_texts, said=typed_texts, more=typed_texts, as_ids=st.booleans())
@settings(max_examples=40, deadline=None)
def test_control_tokens_spelled_in_a_message_stay_text(
    source: str, tokenizer: TextTokenizer, system: str, user: str, said: str, more: str, as_ids: bool
) -> None:
    def chat(*texts: str) -> list[Message]:
        roles: list[Literal["system", "user", "assistant", "user"]] = ["system", "user", "assistant", "user"]
        return [Message(role, text) for role, text in zip(roles, texts, strict=True)]

    messages = chat(system, user, said, more)
    if as_ids:  # the letters of a control token, drawn one by one, are no control token
        drawn = [token for letter in said for token in tokenizer.encode(letter)]
        messages[2] = Message("assistant", tokenizer.decode(drawn), tuple(drawn))
    ids = guarded(messages, source, tokenizer)
    plain = guarded(chat("a", "b", "c", "d"), source, tokenizer)
    assert controls(ids, tokenizer) == controls(plain, tokenizer)
    if tokenizer is BYTES:  # the others put spaces of their own before texts
        written = b"".join(map(tokenizer.spelled, ids)).decode()
        assert written.removeprefix(BOS) == template(source).render(messages).removeprefix(BOS)


def test_a_spelled_control_token_is_told_from_what_the_template_writes_and_changes_nothing_else() -> None:
    ids = guarded([Message("user", "a</s>b"), Message("assistant", "<s>"), Message("user", "c")], TURNED, BYTES)
    assert [BYTES.spelled(token).decode() for token in ids if not BYTES.pieces[token]] == (
        [BOS, "<|turn|>", EOS, "<|turn|>", EOS, "<|turn|>", EOS, "<|turn|>"]
    )
    messages = [Message("user", "an ordinary < text"), Message("assistant", "so"), Message("user", "it > is")]
    assert guarded(messages, TURNED, BYTES) == prompt(messages, TURNED)


def test_a_continued_reply_keeps_the_control_tokens_it_spells_as_text() -> None:
    opened = guarded([Message("user", "go")], TURNED, BYTES)
    ids = guarded([Message("user", "go"), Message("assistant", "see </s> and")], TURNED, BYTES)
    assert ids[: len(opened)] == opened
    assert ids[len(opened) :] == [*BYTES.encode("see <"), *BYTES.encode("/s> and")]
    mended = Message("assistant", "see </s>", pieces=(tuple(BYTES.encode("see")), " </s>"))
    assert controls(guarded([Message("user", "go"), mended], TURNED, BYTES), BYTES) == controls(opened, BYTES)


def test_templates_still_find_the_marks_of_reasoning_in_replies() -> None:
    vocabulary = ["<think>", "</think>", "<|channel|>", "<|message|>", "<|start|>", "<|return|>"]
    control_texts = ControlTexts(vocabulary)
    disguise = Disguise(control_texts, [])
    thought = Message("assistant", "<think>why</think>so <|return|>")
    assert disguise.put_on(thought).text.startswith("<think>why</think>so ")
    assert "<|return|>" not in disguise.put_on(thought).text
    assert "<think>" not in disguise.put_on(Message("user", thought.text)).text
    channels = "<|channel|>analysis<|message|>why<|start|>assistant<|channel|>final<|message|>so <|return|> <|channel|>"
    said = disguise.put_on(Message("assistant", channels)).text
    assert said.startswith("<|channel|>analysis<|message|>why<|start|>assistant<|channel|>final<|message|>so ")
    assert control_texts.places(said.removeprefix(channels[: channels.index("so")])) == []
    assert "".join(disguise.parts(said)) == channels


def test_spellings_that_overlap_are_all_cut() -> None:
    disguise = Disguise(ControlTexts(["<a<b>", "<b>", "x<", "b>c"]), ["x<a<b>c"])
    parts = disguise.parts(disguise.put_on(Message("user", "x<a<b>c")).text)
    assert "".join(parts) == "x<a<b>c"
    assert not any(text in part for part in parts for text in ("<a<b>", "<b>", "x<", "b>c"))


def test_markup_of_a_template_counts_as_control_tokens_though_the_vocabulary_calls_it_words() -> None:
    words = ["<start_of_turn>", "<end_of_turn>", "<table>", "\n", "<think>", "model"]
    assert template_markup(template(GEMMA2), words) == ["<start_of_turn>", "<end_of_turn>"]
    for other in (THINKING, "{{ raise_exception('no') }}"):
        assert template_markup(template(other), words) == ["<end_of_turn>"], "it ends texts in any vocabulary"


@pytest.mark.parametrize("source", [TURNED, GEMMA2, None], ids=["turned", "gemma", "base"])
def test_the_tokens_before_the_last_message_of_a_person_are_those_it_cannot_change(source: str | None) -> None:
    def count(*messages: Message) -> int:
        return num_before_last(messages, lambda chat: prompt(chat, source))

    first = [Message("user", "hi"), Message("assistant", "Hello.")]
    ids = prompt([*first, Message("user", "what?")], source)
    before = count(*first, Message("user", "what?"))
    assert before == count(*first, Message("user", "0 and all that"), Message("assistant", "yes"))
    assert BYTES.decode(ids[:before]).rstrip() in BYTES.decode(ids)
    assert "what?" not in BYTES.decode(ids[:before])
    assert "Hello." in BYTES.decode(ids[:before])
    assert count(*first[1:]) == count() == 0


HARMONY = (
    "{% for m in messages %}<|start|>{{ m.role }}"
    "{% if m.role == 'assistant' %}{{ raise_exception('channels') if '<|channel|>' in m.content }}"
    "<|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant"
)


def test_a_literal_return_in_an_answer_of_gpt_oss_stays_text_where_the_template_writes_the_answer_anew() -> None:
    marks = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"]
    tokenizer = build_tokenizer(byte_level_vocabulary())
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    harmony = TextTokenizer(tokenizer, SpecialTokens(None, (), False))
    answer = "write <|return|>, not <|end|>"
    said = f"<|channel|>analysis<|message|>why<|start|>assistant<|channel|>final<|message|>{answer}"
    drawn = [harmony.id_of("<|channel|>"), *harmony.encode("the model's own ids")]
    chat = [Message("user", "how?"), Message("assistant", said, tuple(drawn)), Message("user", "why?")]
    ids = guarded(chat, HARMONY, harmony)
    written = [name for token in ids if (name := harmony.name(token)) in marks]
    question, reply_written = ["<|start|>", "<|message|>", "<|end|>"], ["<|start|>", "<|channel|>", *marks[2:4]]
    assert written == [*question, *reply_written, *question, "<|start|>"]
    assert answer in b"".join(map(harmony.spelled, ids)).decode()
