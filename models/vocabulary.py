"""A vocabulary as GGUF and SentencePiece files list it, turned into a `tokenizers.Tokenizer` in a second or two.

Tokens with scores become BPE merges: SentencePiece joins the two neighbours whose union scores best, which is a merge
list in order of score. Building the object directly takes 2 s for Gemma's 262,144 tokens, where a conversion through
transformers takes 35.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from backends.errors import ModelFileError
from models.pre_tokenizers import PreTokenizer, find_pre_tokenizer

SPACE = "▁"
"""How SentencePiece spells a space (U+2581)."""


class TokenType(IntEnum):
    """What a token is, numbered as SentencePiece and GGUF number it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, and how they combine.

    Attributes:
        source: file it came from, for messages.
        tokens: text of each id.
        types: `TokenType` of each id.
        scores: of each id, for vocabularies merged by score; None for those with a merge list.
        merges: "left right" in order; None for those merged by score.
        pre_tokenizer: name of the cut, for those with a merge list.
        adds_space_prefix: a space is put before text (Llama 2, Mistral v1; not Gemma).
        unknown_id: stands for what no token and no byte spells.
        strips_after_control: white space after a control token is dropped (Phi-3).
    """

    source: str
    tokens: Sequence[str]
    types: Sequence[int]
    scores: npt.NDArray[np.float32] | None = None
    merges: Sequence[str] | None = None
    pre_tokenizer: str = "default"
    adds_space_prefix: bool = False
    unknown_id: int | None = None
    strips_after_control: bool = False
    ids: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", {token: index for index, token in enumerate(self.tokens)})


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Return the tokenizer of a vocabulary; it adds no special tokens of its own.

    Raises:
        ModelFileError: the lists contradict each other.
        UnsupportedModelError: the cut into words is unknown.
    """
    pre_tokenizer = None if vocabulary.merges is None else find_pre_tokenizer(vocabulary.pre_tokenizer)
    try:
        if pre_tokenizer is not None and pre_tokenizer.byte_level:
            tokenizer = _byte_level(vocabulary, pre_tokenizer)
        else:
            tokenizer = _sentencepiece(vocabulary, pre_tokenizer)
    except Exception as error:  # `tokenizers` raises plain Exception for a merge outside the vocabulary
        raise ModelFileError(f"The vocabulary in {vocabulary.source} is damaged: {error}.") from error
    _add_whole_tokens(tokenizer, vocabulary)
    return tokenizer


def _byte_level(vocabulary: Vocabulary, cut: PreTokenizer) -> Tokenizer:
    tokenizer = Tokenizer(
        BPE(vocab=vocabulary.ids, merges=_listed_merges(vocabulary), ignore_merges=cut.ignores_merges)
    )
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut.patterns]
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(vocabulary: Vocabulary, cut: PreTokenizer | None) -> Tokenizer:
    merges = _scored_merges(vocabulary) if cut is None else _listed_merges(vocabulary)
    unknown = None if vocabulary.unknown_id is None else vocabulary.tokens[vocabulary.unknown_id]
    tokenizer = Tokenizer(BPE(vocab=vocabulary.ids, merges=merges, byte_fallback=True, unk_token=unknown))
    spaces = normalizers.Replace(" ", SPACE)
    prefix = [normalizers.Prepend(SPACE)] if vocabulary.adds_space_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, spaces])
    if cut is not None:
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut.patterns]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    strip = [decoders.Strip(" ", 1, 0)] if vocabulary.adds_space_prefix else []
    tokenizer.decoder = decoders.Sequence([*steps, *strip])
    return tokenizer


def _listed_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    merges = []
    for line in vocabulary.merges or ():
        cut = line.find(" ", 1)
        merges.append((line[:cut], line[cut + 1 :]))
    return merges


def _scored_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Return every way to join two tokens into a third, best score first.

    Equal scores go by the longer left part, then the longer right one: a run of spaces then grows from its left end, as
    SentencePiece's leftmost-first rule makes it.
    """
    lefts: list[str] = []
    rights: list[str] = []
    wholes: list[int] = []
    ids = vocabulary.ids
    mergeable = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    for index, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        if kind not in mergeable:
            continue
        for cut in range(1, len(token)):  # the hot loop: 1.8 million cuts for Gemma
            left = token[:cut]
            if left in ids:
                right = token[cut:]
                if right in ids:
                    lefts.append(left)
                    rights.append(right)
                    wholes.append(index)
    scores = np.zeros(len(ids), np.float32) if vocabulary.scores is None else vocabulary.scores
    left_lengths = np.fromiter(map(len, lefts), np.int32, len(lefts))
    right_lengths = np.fromiter(map(len, rights), np.int32, len(rights))
    order = np.lexsort((-right_lengths, -left_lengths, -scores[np.asarray(wholes, np.int64)]))
    return [(lefts[place], rights[place]) for place in order.tolist()]


def _add_whole_tokens(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Make control and user-defined tokens match as a whole wherever their text stands."""
    control: list[AddedToken] = []
    user_defined: list[AddedToken] = []
    for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True):
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            strips = vocabulary.strips_after_control
            control.append(AddedToken(token, normalized=False, special=True, rstrip=strips))
        elif kind == TokenType.USER_DEFINED:
            user_defined.append(AddedToken(token, normalized=False, special=False))
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens(user_defined)
