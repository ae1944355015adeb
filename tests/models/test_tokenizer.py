"""Token ids are those of llama.cpp for GGUF files and of transformers for folders; what cannot be read is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders

from backends.errors import ModelFileError, RingsideError, UnsupportedModelError
from models.model_files import ModelFiles
from models.pre_tokenizers import PRE_TOKENIZERS
from models.tokenizer import TextTokenizer, load_tokenizer
from models.vocabulary import build_tokenizer
from tests.models.gguf_files import write_gguf
from tests.models.sentencepiece_files import write_sentencepiece
from tests.models.tiny_tokenizers import (
    BOS,
    EOS,
    TURN,
    byte_level_vocabulary,
    metaspace_tokenizer,
    sentencepiece_vocabulary,
    write_folder,
    write_vocabulary_gguf,
)

TEXTS = (
    "Hello, the world's END. I'll be 1234567 and 42.5% don't DON'T 'S we'Re",
    "  def f(x):\n\n\n    return x+1  # c\n\t\ttabs\r\n\r\nx ",
    "a  b   c    d\n \n  \nend   ",
    "ABCdef camelCase HTTPServer x1y22z333 $5 <=> ^~|`",
    "日本語の文章、中文123。한국어 Ünïcödé ñ e\u0301 Привет мир",
    "👨‍👩‍👧‍👦🇩🇪🏳️‍🌈 ½ ² १२३",
    "...!!??((([[",
    "http://a.b/c?d=e&f#g //// /n/\n/",
    "مرحبا، بالعالم ۔",
    "   ",
    "\n\n\n",
    "x\u00a0y\u2003z\u200b",
    "\x00\x01\x7f",
    "<0x0A> <0xFF> a▁b ▁▁",
    "a" * 200,
    "=" * 150 + "-" * 33,
    "\n".join("a" + " " * count + "b" for count in range(40)),
    "x".join("\n" * count for count in range(40)),
    "x".join("\t" * count for count in range(40)),
    "<bos>hi<end_of_turn>\n<start_of_turn>user <|im_start|>x<|im_end|>\n<s></s>",
    "<table><tr><td>hello</td></tr></table><strong>",
)


EOS_OBJECT = {"__type": "AddedToken", "content": EOS, "normalized": False, "special": True}
"""Files spell a special token as a string or as an object."""


def llama_ids(path: Path, texts: tuple[str, ...] = TEXTS) -> list[list[int]]:
    """Tokenise with llama.cpp, reading the vocabulary alone."""
    llama_cpp = pytest.importorskip("llama_cpp")
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    ids = [model.tokenize(text.encode(), add_bos=False, special=True) for text in texts]
    model.close()
    return ids


def folder_ids(folder: Path, **options: Any) -> list[list[int]]:
    """Tokenise with transformers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer(text, **options)["input_ids"] for text in TEXTS]


def ours(path: Path) -> TextTokenizer:
    return load_tokenizer(ModelFiles.open(path))


@pytest.mark.real_model
def test_the_real_gemma_file_gives_the_ids_that_llama_cpp_gives(gemma_path: Path) -> None:
    tokenizer = ours(gemma_path)
    texts = (*TEXTS, Path(__file__).read_text(encoding="utf-8"))
    assert [tokenizer.encode(text) for text in texts] == llama_ids(gemma_path, texts)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.adds_bos) == (2, (1, 106), True)
    assert tokenizer.vocab_size == 262_144


@pytest.mark.real_model
def test_the_real_smollm2_file_gives_the_ids_that_llama_cpp_gives(smollm2_path: Path) -> None:
    tokenizer = ours(smollm2_path)
    assert [tokenizer.encode(text) for text in TEXTS] == llama_ids(smollm2_path)
    assert (tokenizer.bos_id, tokenizer.adds_bos) == (1, False)
    assert 2 in tokenizer.eos_ids
    assert all(tokenizer.decode(tokenizer.encode(text)) == text for text in TEXTS[:18])


@pytest.mark.parametrize("adds_space_prefix", [False, True])
def test_scored_vocabularies_merge_as_llama_cpp_merges_them(adds_space_prefix: bool, tmp_path: Path) -> None:
    path = write_vocabulary_gguf(tmp_path / "model.gguf", sentencepiece_vocabulary(adds_space_prefix))
    texts = (*TEXTS, "the quick  Hello   world dog ending defde")
    assert [ours(path).encode(text) for text in texts] == llama_ids(path, texts)


LLAMA_CPP_DIFFERS = {"tiny_aya", "cohere2moe"}
"""There llama.cpp does not tell upper case from lower; the model's own tokenizer.json, which we follow, does."""


@pytest.mark.parametrize(
    "name", sorted(name for name, cut in PRE_TOKENIZERS.items() if cut.byte_level and name not in LLAMA_CPP_DIFFERS)
)
def test_every_named_cut_gives_the_ids_that_llama_cpp_gives(name: str, tmp_path: Path) -> None:
    vocabulary = byte_level_vocabulary(name, cuts_words=False)  # merges run across words, so that every cut shows
    path = write_vocabulary_gguf(tmp_path / "model.gguf", vocabulary)
    assert [ours(path).encode(text) for text in TEXTS] == llama_ids(path)


@pytest.mark.parametrize(
    ("tokenizer", "adds_bos"),
    [
        (build_tokenizer(byte_level_vocabulary()), True),
        (build_tokenizer(byte_level_vocabulary()), False),
        (build_tokenizer(sentencepiece_vocabulary()), True),
        (metaspace_tokenizer(), False),
    ],
    ids=["byte-level with BOS", "byte-level", "sentencepiece with BOS", "metaspace"],
)
def test_a_folder_gives_the_ids_that_transformers_gives(tokenizer: Tokenizer, adds_bos: bool, tmp_path: Path) -> None:
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS_OBJECT}
    generation = {"eos_token_id": [tokenizer.token_to_id(EOS), tokenizer.token_to_id(TURN)]}
    folder = write_folder(
        tmp_path, tokenizer, adds_bos, tokenizer_config__json=settings, generation_config__json=generation
    )
    loaded = ours(folder)
    assert [loaded.encode(text) for text in TEXTS] == folder_ids(folder, add_special_tokens=False)
    assert loaded.bos_id == tokenizer.token_to_id(BOS)
    assert loaded.adds_bos == adds_bos == (folder_ids(folder)[0][0] == loaded.bos_id)
    assert set(loaded.eos_ids) == set(generation["eos_token_id"])


def test_a_folder_with_only_a_sentencepiece_model_is_read_as_the_same_vocabulary(tmp_path: Path) -> None:
    vocabulary = sentencepiece_vocabulary(adds_space_prefix=True)
    folder = write_folder(tmp_path / "folder", None, tokenizer_config__json={"bos_token": BOS, "add_bos_token": True})
    write_sentencepiece(folder / "tokenizer.model", vocabulary)
    gguf = write_vocabulary_gguf(tmp_path / "model.gguf", vocabulary)
    assert [ours(folder).encode(text) for text in TEXTS] == [ours(gguf).encode(text) for text in TEXTS]
    assert ours(folder).adds_bos


def test_the_end_of_turn_token_ends_replies_even_where_the_file_names_another(tmp_path: Path) -> None:
    vocabulary = sentencepiece_vocabulary()
    tokens = ["<|im_end|>" if token == TURN else token for token in vocabulary.tokens]
    path = write_vocabulary_gguf(tmp_path / "model.gguf", vocabulary, **{"tokenizer.ggml.tokens": tokens})
    assert ours(path).eos_ids == (2, 3)


def test_special_tokens_outside_the_vocabulary_are_passed_over(tmp_path: Path) -> None:
    path = write_vocabulary_gguf(
        tmp_path / "model.gguf", sentencepiece_vocabulary(), **{"tokenizer.ggml.bos_token_id": 4_000_000_000}
    )
    assert ours(path).bos_id is None
    assert not ours(path).adds_bos


def refusal(path: Path) -> RingsideError:
    with pytest.raises(RingsideError) as caught:
        ours(path)
    return caught.value


def test_an_unknown_cut_is_refused_by_name(tmp_path: Path) -> None:
    path = write_vocabulary_gguf(
        tmp_path / "model.gguf", byte_level_vocabulary(), **{"tokenizer.ggml.pre": "from-the-future"}
    )
    error = refusal(path)
    assert isinstance(error, UnsupportedModelError)
    assert "'from-the-future'" in str(error)
    assert "llama.cpp backend" in str(error)


def test_an_unknown_kind_of_vocabulary_is_refused_by_name(tmp_path: Path) -> None:
    path = write_vocabulary_gguf(tmp_path / "model.gguf", sentencepiece_vocabulary(), **{"tokenizer.ggml.model": "t5"})
    assert "'t5'" in str(refusal(path))


def test_a_file_without_vocabulary_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", "llama", {}, {"token_embd.weight": np.zeros((1, 32))})
    assert str(refusal(path)) == f"{path} holds no vocabulary. Use a complete GGUF file."


def test_a_merge_outside_the_vocabulary_is_refused_with_the_file(tmp_path: Path) -> None:
    path = write_vocabulary_gguf(
        tmp_path / "model.gguf", byte_level_vocabulary(), **{"tokenizer.ggml.merges": ["nothing here"]}
    )
    error = refusal(path)
    assert isinstance(error, ModelFileError)
    assert str(path) in str(error)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tekken__json": {}}, "has no tokenizer.json (only tekken.json)"),
        ({"tokenizer__json": "{"}, "tokenizer.json cannot be read"),
        ({"tokenizer__model": b"\x0a\xff"}, "tokenizer.model cannot be read as a SentencePiece model"),
        ({"tokenizer__model": b""}, "it lists no pieces"),
    ],
    ids=["another format", "cut JSON", "cut SentencePiece", "empty SentencePiece"],
)
def test_a_folder_whose_tokenizer_cannot_be_read_is_refused_in_one_sentence(
    files: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert said in str(refusal(write_folder(tmp_path, None, **files)))


def test_a_unigram_sentencepiece_model_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, None)
    write_sentencepiece(folder / "tokenizer.model", sentencepiece_vocabulary(), model_type=1)
    assert "not a BPE model" in str(refusal(folder))


def test_a_decoder_that_cannot_be_streamed_is_refused_by_name(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(byte_level_vocabulary())
    tokenizer.decoder = decoders.WordPiece()
    assert "'WordPiece'" in str(refusal(write_folder(tmp_path, tokenizer)))
