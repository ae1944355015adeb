"""What ends a reply: what any of a folder's files names, what its vocabulary says, and what its template writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from models.chat_template import ChatTemplate
from models.control_text import ControlTexts
from models.model_files import ModelFiles
from models.special_tokens import SpecialTokens
from models.tokenizer import TextTokenizer, load_tokenizer
from models.turn_ends import turn_ends
from models.vocabulary import build_tokenizer
from tests.models.templates import CHATML, GEMMA2, LLAMA2, NO_SYSTEM_NO_COMPLAINT, THINKING
from tests.models.tiny_tokenizers import BOS, EOS, byte_level_vocabulary, write_folder

ZEPHYR = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
HARMONY = (
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}"
    "{{ '<|return|>' if loop.last and m.role == 'assistant' else '<|end|>' }}{% endfor %}"
)
BEGINS_EACH = "{% for m in messages %}{{ bos_token }}{{ m.role }}: {{ m.content }}{% endfor %}"
SPECIAL = [BOS, EOS, "<|im_start|>", "<|im_end|>", "<end_of_turn>", "<start_of_turn>", "<|user|>", "<|assistant|>"]
GPT_OSS = ["<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"]


@pytest.mark.parametrize(
    ("source", "special", "expected"),
    [
        (CHATML, SPECIAL, ["<|im_end|>"]),
        (GEMMA2, SPECIAL, ["<end_of_turn>"]),
        (LLAMA2, SPECIAL, [EOS]),
        (ZEPHYR, SPECIAL, [EOS]),
        (HARMONY, GPT_OSS, ["<|return|>"]),
        (HARMONY, ["<|end|>"], ["<|end|>"]),
        (THINKING, SPECIAL, ["<|user|>"]),
        (BEGINS_EACH, SPECIAL, []),
        (NO_SYSTEM_NO_COMPLAINT, SPECIAL, []),
        ("{{ raise_exception('no') }}", SPECIAL, []),
    ],
    ids=["chatml", "gemma", "llama", "zephyr", "harmony", "plain end", "next turn", "begins each", "text", "refuses"],
)
def test_the_token_a_template_writes_behind_a_reply_ends_it(
    source: str, special: list[str], expected: list[str]
) -> None:
    template = ChatTemplate(source, "the test", {"bos_token": BOS, "eos_token": EOS})
    assert turn_ends(template, ControlTexts(special), BOS) == expected


def tokenizer_with(special: list[str], words: list[str]) -> Tokenizer:
    tokenizer = build_tokenizer(byte_level_vocabulary())
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    tokenizer.add_tokens([AddedToken(text, special=False) for text in words])
    return tokenizer


@pytest.mark.parametrize(
    ("special", "words", "files", "expected"),
    [
        (["<|endoftext|>", "<|im_end|>"], [], {"generation_config__json": {"eos_token_id": 1}}, [EOS, "<|im_end|>"]),
        (["<|eot_id|>"], [], {"config__json": {"eos_token_id": [1]}}, [EOS, "<|eot_id|>"]),
        (["<stop>"], [], {"tokenizer_config__json": {"eot_token": "<stop>"}}, [EOS, "<stop>"]),
        (["<stop>"], [], {"special_tokens_map__json": {"eos_token": {"content": "<stop>"}}}, [EOS, "<stop>"]),
        (
            ["<stop>"],
            [],
            {
                "special_tokens_map__json": {"eos_token": "<stop>"},
                "tokenizer_config__json": {"eos_token": EOS},
            },
            [EOS],
        ),
        (GPT_OSS, [], {}, [EOS, "<|return|>", "<|call|>"]),
        ([], ["<end_of_turn>"], {}, [EOS, "<end_of_turn>"]),
    ],
    ids=["chatml", "llama 3", "eot", "special tokens map", "two names", "gpt-oss", "a word"],
)
def test_every_file_of_a_folder_and_the_names_of_its_special_tokens_say_what_ends_a_reply(
    special: list[str], words: list[str], files: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    tokenizer = tokenizer_with(special, words)
    files = {name: {"model_type": "llama", **content} for name, content in files.items()}
    loaded = load_tokenizer(ModelFiles.open(write_folder(tmp_path, tokenizer, **files)))
    names = {loaded.name(token) for token in loaded.eos_ids}
    assert {name for name in names if name != "<|endoftext|>"} == set(expected)


def test_ids_without_a_token_are_told_from_those_with_one() -> None:

    tokenizer = TextTokenizer(tokenizer_with(["<a>"], ["<b>"]), SpecialTokens(0, (1,), True), unused_ids=[5])
    size = tokenizer.vocab_size
    assert tokenizer.empty_ids(size + 3) == (5, size, size + 1, size + 2)
