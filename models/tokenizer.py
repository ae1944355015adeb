"""Text to token ids and back, from a Hugging Face folder or from a GGUF file's own vocabulary, with the same words.

No special tokens are added here: `models.prompt` puts the one BOS where it belongs. Streaming is `models.detokenizer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer

from backends.errors import ModelFileError, UnsupportedModelError
from models.detokenizer import decode
from models.gguf_reader import GgufFile
from models.model_files import ModelFiles
from models.reasoning import CONTROL_MARKS
from models.sentencepiece_model import read_sentencepiece
from models.special_tokens import (
    SpecialTokens,
    folder_special_tokens,
    gguf_special_tokens,
)
from models.token_names import gguf_token_id
from models.token_pieces import TokenPieces
from models.vocabulary import TokenType, Vocabulary, build_tokenizer


class TextTokenizer:
    """One model's tokenizer.

    Attributes:
        pieces: each token's bytes.
        special: ids with a meaning.
        control_texts: spellings that `encode` reads as control tokens.
        user_defined_texts: those that it reads as other whole tokens.
    """

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens, unused_ids: Iterable[int] = ()) -> None:
        """Read which tokens are special.

        Args:
            tokenizer: adds no special tokens of its own, or is never asked to.
            special: ids with a meaning.
            unused_ids: tokens that fill the vocabulary up to the rows of the model's head.
        """
        self._tokenizer = tokenizer
        self._unused_ids = frozenset(unused_ids)
        self.special = special
        added = tokenizer.get_added_tokens_decoder()
        hidden = [index for index, token in added.items() if token.special and token.content not in CONTROL_MARKS]
        self.pieces = TokenPieces(tokenizer, hidden)
        self.control_texts = [token.content for token in added.values() if token.special]
        self.user_defined_texts = [token.content for token in added.values() if not token.special]

    @property
    def bos_id(self) -> int | None:
        return self.special.bos_id

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.special.eos_ids

    @property
    def adds_bos(self) -> bool:
        return self.special.adds_bos

    @property
    def vocab_size(self) -> int:
        """Tokens, added ones included; the model's logits may have more rows."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def empty_ids(self, num_rows: int) -> tuple[int, ...]:
        """Return the rows of logits that stand for no token, or for one that only fills the vocabulary up."""
        name = self._tokenizer.id_to_token
        return tuple(token for token in range(num_rows) if token in self._unused_ids or name(token) is None)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. Special tokens spelled in it become those tokens; no BOS is added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def spelled(self, token_id: int) -> bytes:
        """Return one token's bytes; one that shows nothing in a text is given by its name."""
        return self.pieces[token_id] or self.name(token_id).encode()

    def name(self, token_id: int) -> str:
        """Return what the vocabulary calls a token; nothing for ids outside it."""
        return self._tokenizer.id_to_token(token_id) or ""

    def id_of(self, name: str) -> int:
        """Return the id of a token of the vocabulary by its name."""
        token_id = self._tokenizer.token_to_id(name)
        assert token_id is not None, f"{name!r} is no token"
        return token_id

    def decode(self, token_ids: Iterable[int]) -> str:
        """Return the text of a sequence. Control tokens show nothing; bytes that are no character become U+FFFD."""
        return decode(self.pieces, token_ids)


def load_tokenizer(files: ModelFiles) -> TextTokenizer:
    """Build the tokenizer of a model: a folder's own, or one from a GGUF file's vocabulary.

    Raises:
        ModelFileError: the model has no tokenizer, or it is damaged.
        UnsupportedModelError: the tokenizer is of a kind that cannot be read here.
    """
    return _from_folder(files.path) if files.gguf is None else _from_gguf(files.gguf)


def _from_gguf(gguf: GgufFile) -> TextTokenizer:
    vocabulary = _gguf_vocabulary(gguf)
    unused_ids = (token for token, kind in enumerate(vocabulary.types) if kind == TokenType.UNUSED)
    return TextTokenizer(build_tokenizer(vocabulary), gguf_special_tokens(gguf, vocabulary), unused_ids)


def _from_folder(folder: Path) -> TextTokenizer:
    tokenizer = _folder_tokenizer(folder)
    return TextTokenizer(tokenizer, folder_special_tokens(folder, tokenizer))


def _gguf_vocabulary(gguf: GgufFile) -> Vocabulary:
    meta = gguf.metadata
    kind, tokens = str(meta.get("tokenizer.ggml.model", "")), meta.get("tokenizer.ggml.tokens")
    if tokens is None or kind == "none":
        raise ModelFileError(f"{gguf.path} holds no vocabulary.", "Use a complete GGUF file.")
    if kind not in ("llama", "gpt2", "gemma4"):
        raise UnsupportedModelError(
            f"{gguf.path.name} has a tokenizer of kind {kind!r}, which the ring backend does not read.",
            "Use the llama.cpp backend.",
        )
    by_score = kind == "llama"
    types = meta.get("tokenizer.ggml.token_type")
    name = str(meta.get("general.name", "")).lower()
    return Vocabulary(
        source=str(gguf.path),
        tokens=tokens,
        types=[int(TokenType.NORMAL)] * len(tokens) if types is None else types.tolist(),
        scores=meta.get("tokenizer.ggml.scores") if by_score else None,
        merges=None if by_score else meta.get("tokenizer.ggml.merges", []),
        pre_tokenizer=_gguf_pre_tokenizer(gguf),
        adds_space_prefix=by_score and bool(meta.get("tokenizer.ggml.add_space_prefix", True)),
        unknown_id=gguf_token_id(gguf, "unknown"),
        strips_after_control="phi-3" in name or "phi3" in name,
    )


def _gguf_pre_tokenizer(gguf: GgufFile) -> str:
    if gguf.metadata.get("tokenizer.ggml.model") == "gemma4":
        return "gemma4"
    return str(gguf.metadata.get("tokenizer.ggml.pre") or "default")


def _folder_tokenizer(folder: Path) -> Tokenizer:
    listed = folder / "tokenizer.json"
    if listed.is_file():
        try:
            return Tokenizer.from_file(str(listed))
        except Exception as error:  # `tokenizers` raises plain Exception for anything it cannot read
            raise ModelFileError(f"{listed} cannot be read: {error}.", "Download it again.") from error
    sentencepiece = folder / "tokenizer.model"
    if sentencepiece.is_file():
        return build_tokenizer(read_sentencepiece(sentencepiece))
    others = sorted(path.name for path in folder.glob("*") if path.name.startswith(("vocab", "tekken", "tokenizer")))
    found = f" (only {', '.join(others)})" if others else ""
    raise ModelFileError(
        f"{folder} has no tokenizer.json{found}.", "Download the model's tokenizer.json into the folder."
    )
