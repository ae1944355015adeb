"""A stream of tokens gives the text of the whole, in whole characters, at one look-up a token."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.detokenizer import StreamDecoder
from models.special_tokens import SpecialTokens
from models.tokenizer import TextTokenizer
from models.vocabulary import build_tokenizer
from tests.models.tiny_tokenizers import (
    BOS,
    byte_level_vocabulary,
    metaspace_tokenizer,
    sentencepiece_vocabulary,
)

_SPECIAL = SpecialTokens(bos_id=1, eos_ids=(2,), adds_bos=True)
BYTE_LEVEL = TextTokenizer(build_tokenizer(byte_level_vocabulary()), _SPECIAL)
LLAMA = TextTokenizer(build_tokenizer(sentencepiece_vocabulary(adds_space_prefix=True)), _SPECIAL)
GEMMA = TextTokenizer(build_tokenizer(sentencepiece_vocabulary(adds_space_prefix=False)), _SPECIAL)
METASPACE = TextTokenizer(metaspace_tokenizer(), _SPECIAL)
KINDS = {"byte-level": BYTE_LEVEL, "llama": LLAMA, "gemma": GEMMA, "metaspace": METASPACE}
LOSSLESS_KINDS = {name: tokenizer for name, tokenizer in KINDS.items() if name != "metaspace"}
"""Metaspace puts no space before text that begins with one, so it cannot tell " a" from "a" (nor can the library)."""

each_kind = pytest.mark.parametrize("tokenizer", KINDS.values(), ids=KINDS)
each_lossless_kind = pytest.mark.parametrize("tokenizer", LOSSLESS_KINDS.values(), ids=LOSSLESS_KINDS)

FAMILY, FLAG, RAINBOW = "👨‍👩‍👧‍👦", "🇩🇪", "🏳️‍🌈"
TEXTS = (
    f"{FAMILY} and {FLAG}{FLAG} and {RAINBOW}",
    "日本語の文章",
    "ภาษาไทย สวัสดี",
    "e\u0301 é n\u0303 ñ",
    "  two spaces first",
    "Hello world!  \n\n\tend ",
    "a real \ufffd in the middle and at the end \ufffd",
)


def stream(tokenizer: TextTokenizer, prompt: Sequence[int], generated: Sequence[int]) -> list[str]:
    decoder = StreamDecoder(tokenizer, prompt)
    return [*(decoder.push(token) for token in generated), decoder.flush()]


@each_kind
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_any_stream_is_the_text_of_the_whole_without_that_of_the_prompt(
    tokenizer: TextTokenizer, data: st.DataObject
) -> None:
    ids = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=12)
    prompt, generated = data.draw(ids), data.draw(ids)
    prompt_text = tokenizer.decode(prompt)
    if prompt_text.endswith("\ufffd"):  # a cut character, which the reply may complete: tested below
        prompt, prompt_text = [], ""
    assert prompt_text + "".join(stream(tokenizer, prompt, generated)) == tokenizer.decode([*prompt, *generated])


@each_lossless_kind
@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_whole_and_never_shows_half_a_character(tokenizer: TextTokenizer, text: str) -> None:
    pieces = stream(tokenizer, [1], tokenizer.encode(text))
    assert "".join(pieces) == text
    assert "".join(pieces).count("\ufffd") == text.count("\ufffd")


@each_lossless_kind
@given(text=st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_every_text_survives_tokens_and_back(tokenizer: TextTokenizer, text: str) -> None:
    text = text.replace("▁", "_")  # how SentencePiece spells a space: such text comes back as spaces
    assume("<" not in text)  # the name of a special token is that token, which shows nothing
    ids = tokenizer.encode(text)
    assert "".join(stream(tokenizer, [1], ids)) == text
    assert tokenizer.decode(ids) == text


def test_each_byte_is_a_token_of_its_own_in_the_byte_level_fixture() -> None:
    assert len(BYTE_LEVEL.encode("日本語の文章")) == 18


@pytest.mark.parametrize("prefix", ["", " ", "  "])
def test_spaces_at_the_start_are_kept_as_they_were_written(prefix: str) -> None:
    for tokenizer in (LLAMA, GEMMA):
        assert "".join(stream(tokenizer, [1], tokenizer.encode(f"{prefix}Hello world!"))) == f"{prefix}Hello world!"


def test_a_generated_word_keeps_the_space_that_its_token_spells() -> None:
    prompt, world = LLAMA.encode("Hello"), LLAMA.encode("world")
    assert stream(LLAMA, prompt, world) == [" world", ""]


def test_a_cut_character_is_flushed_as_decoding_the_whole_would() -> None:
    for tokenizer in (BYTE_LEVEL, GEMMA):
        cut = tokenizer.encode(FLAG)[:-1]
        pieces = stream(tokenizer, [1], cut)
        assert pieces[-1] == "\ufffd"
        assert "\ufffd" not in "".join(pieces[:-1])
        assert "".join(pieces) == tokenizer.decode(cut)


def test_a_reply_that_was_cut_inside_a_character_goes_on_with_the_whole_character() -> None:
    ids = BYTE_LEVEL.encode("x😀y")
    assert "".join(stream(BYTE_LEVEL, ids[:3], ids[3:])) == "😀y"


def test_a_real_replacement_character_is_emitted_at_once() -> None:
    ids = BYTE_LEVEL.encode("\ufffd")
    assert stream(BYTE_LEVEL, [1], ids) == ["", "", "\ufffd", ""]


def test_control_tokens_show_nothing_and_ids_beyond_the_vocabulary_are_harmless() -> None:
    assert stream(BYTE_LEVEL, [], [0, 2, 1, BYTE_LEVEL.vocab_size + 5, -1]) == [""] * 6
    assert GEMMA.decode(GEMMA.encode(f"{BOS}Hello")) == "Hello"


@each_kind
def test_decoding_agrees_with_the_library_on_text(tokenizer: TextTokenizer) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == tokenizer._tokenizer.decode(ids, skip_special_tokens=True)


def test_decoding_agrees_with_the_library_on_any_bytes() -> None:
    rng = random.Random(0)
    for _ in range(300):
        ids = [rng.randrange(BYTE_LEVEL.vocab_size) for _ in range(rng.randrange(1, 12))]
        assert BYTE_LEVEL.decode(ids) == BYTE_LEVEL._tokenizer.decode(ids, skip_special_tokens=True)


class CountingPieces:
    """The pieces of a tokenizer, counting look-ups."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.pieces = self
        self.num_lookups = 0
        self._inner = tokenizer.pieces

    @property
    def strips_first_space(self) -> bool:
        return self._inner.strips_first_space

    def __getitem__(self, token_id: int) -> bytes:
        self.num_lookups += 1
        return self._inner[token_id]


def test_a_token_costs_one_lookup_however_long_prompt_and_reply_are() -> None:
    counting = CountingPieces(GEMMA)
    ids = GEMMA.encode("the quick dog ") * 2_000
    decoder = StreamDecoder(counting, ids)
    assert counting.num_lookups <= 5
    before = counting.num_lookups
    for token in ids:
        decoder.push(token)
    assert counting.num_lookups - before == len(ids)
