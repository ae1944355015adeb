"""Replies that follow a JSON schema or a grammar, by llguidance: which tokens may come next, for both backends.

It knows tokens as bytes only, so it serves any vocabulary. The library is optional and loaded with the first request
that needs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.errors import BackendUnavailableError, BadRequestError
from backends.requests import GenerationRequest
from models.schema_ends import endless_reference

_JSON_SPACE = r"(\n {0,16}| )"
"""Between JSON's tokens: one space, or a line end and an indent. Any more lets small models write space without end."""

_CIRCLE_WITH_MORE = re.compile(r"circular references with sibling keys are not supported: json-schema:///(\S*[^\s.])")
"""llguidance's words for `{"$ref": "#", "type": "object"}` and its kind."""


class Constraints:
    """Makes the constraints of one model's requests.

    Args:
        encode: text to ids.
        piece: bytes of a token; none for control tokens, which then never come.
        vocab_size: V, rows of the logits.
        end_ids: tokens that end a text; they may come where the text is complete.
    """

    def __init__(
        self,
        encode: Callable[[str], list[int]],
        piece: Callable[[int], bytes],
        vocab_size: int,
        end_ids: Iterable[int],
    ) -> None:
        self._encode = encode
        self._piece = piece
        self._vocab_size = vocab_size
        self._end_ids = list(end_ids)
        self._tokens: Any = None
        self._spell: Callable[[str], list[int]] = encode

    def open(self, request: GenerationRequest) -> Constraint | None:
        """Return the constraint of a reply, past what is there of it; None where the request has none.

        The first call reads the whole vocabulary: some seconds at 262,144 tokens.

        Raises:
            BackendUnavailableError: llguidance is missing.
            BadRequestError: the schema or grammar is wrong, or the reply so far does not follow it.
        """
        if request.json_schema is None and request.grammar is None:
            return None
        llguidance = _library()
        if request.json_schema is not None:
            what, grammar = "JSON schema", _schema_grammar(llguidance, request.json_schema)
        else:
            what, grammar = "grammar", _text_grammar(llguidance, request.grammar or "")
        if self._tokens is None:
            self._tokens = self._read_vocabulary(llguidance)
        matcher = llguidance.LLMatcher(self._tokens, grammar, log_level=0)
        if matcher.is_error():
            raise _cannot_be_used(what, matcher.get_error())
        constraint = Constraint(matcher, self._vocab_size)
        if not constraint.allows_text:
            raise BadRequestError(
                f"The {what} allows no text at all.", "Give a rule that refers to itself a choice that does not."
            )
        if not constraint.takes(self._earlier_ids(request)):
            raise BadRequestError(f"The reply so far does not follow the {what}.", "Start a new reply, or remove it.")
        return constraint

    def _read_vocabulary(self, llguidance: Any) -> Any:
        if not self._end_ids:
            raise BadRequestError(
                "This model has no token that ends a text, which a JSON schema or grammar needs.", "Remove it."
            )
        ends = set(self._end_ids)
        pieces = [b"" if token in ends else self._piece(token) for token in range(self._vocab_size)]
        self._spell = vocabulary = _Vocabulary(pieces, self._end_ids[0], self._encode)
        return llguidance.LLTokenizer(vocabulary, eos_token=self._end_ids, slices=[])

    def _earlier_ids(self, request: GenerationRequest) -> list[int]:
        last = request.messages[-1] if request.messages else None
        if last is None or last.role != "assistant":
            return []
        pieces = last.known_pieces or (last.text,)
        return [token for piece in pieces for token in (self._spell(piece) if isinstance(piece, str) else piece)]


class Constraint:
    """Where one reply stands in its schema or grammar."""

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    @property
    def allows_text(self) -> bool:
        """Whether any token may come next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return bool(bits.any()) and not self._matcher.is_error()

    def allowed(self) -> npt.NDArray[np.bool_]:
        """Return for each token, [V], whether it may come next. Where the text can only end, the end tokens may."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            raise BadRequestError(f"The schema or grammar became too complex: {_first_line(self._matcher.get_error())}")
        return np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(np.bool_)

    def push(self, token: int) -> None:
        """Take in a drawn token."""
        self.takes((token,))

    def takes(self, tokens: Sequence[int]) -> bool:
        """Take in tokens and say whether they follow."""
        return bool(self._matcher.consume_tokens(list(tokens)))


class _Vocabulary:
    """What `llguidance.LLTokenizer` reads of a tokenizer of its caller's.

    It has text that must come tokenised here, and takes no other tokens for it; so the ids have to spell it exactly,
    also where the model's tokenizer puts a space before every text.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None
    special_token_ids: Sequence[int] = ()

    def __init__(self, tokens: list[bytes], eos_token_id: int, encode: Callable[[str], list[int]]) -> None:
        self.tokens = tokens
        self.eos_token_id = eos_token_id
        self._encode = encode
        self._ids = {piece: token for token, piece in enumerate(tokens) if piece}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: str | bytes) -> list[int]:
        data = text if isinstance(text, bytes) else text.encode()
        ids = self._encode(data.decode("utf-8", "replace"))
        return ids if b"".join(self.tokens[token] for token in ids) == data else self._longest_first(data)

    def _longest_first(self, data: bytes) -> list[int]:
        """Spell bytes by the longest token each time; bytes that no token begins with are left out."""
        ids: list[int] = []
        place = 0
        while place < len(data):
            lengths = range(min(self._longest, len(data) - place), 0, -1)
            length = next((each for each in lengths if data[place : place + each] in self._ids), 0)
            if length:
                ids.append(self._ids[data[place : place + length]])
            place += length or 1
        return ids


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise BackendUnavailableError(
            "Replies that follow a JSON schema or a grammar need llguidance.",
            "Run: pip install -c constraints.txt 'ringside[grammar]'",
        ) from error
    return llguidance


def _schema_grammar(llguidance: Any, schema: str) -> str:
    try:
        content = json.loads(schema)
    except ValueError as error:
        raise BadRequestError(f"The JSON schema is not JSON: {error}.") from error
    except RecursionError as error:
        raise BadRequestError("The JSON schema is nested too deeply.", "Use references in place of nesting.") from error
    if content is True:
        content = {}
    if not isinstance(content, dict):
        raise BadRequestError("The JSON schema is not an object.", 'Write one such as {"type": "object"}.')
    if (reference := endless_reference(content)) is not None:
        raise BadRequestError(
            f"The JSON schema refers to itself by {reference!r} so that no text of it ever ends.",
            "Let that part be optional, or one of several choices.",
        )
    options = {"whitespace_pattern": _JSON_SPACE}
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(content), defaults=options)
    return _checked(llguidance, "JSON schema", grammar)


def _text_grammar(llguidance: Any, text: str) -> str:
    text = text.strip()
    if len(text) > 2 and text[0] == text[-1] == "/" and "\n" not in text:
        return _checked(llguidance, "grammar", llguidance.LLMatcher.grammar_from_regex(text[1:-1]))
    try:
        grammar = llguidance.grammar_from("gbnf", text)  # takes Lark as it is
    except ValueError as error:
        raise _cannot_be_used("grammar", str(error)) from error
    return _checked(llguidance, "grammar", grammar)


def _checked(llguidance: Any, what: str, grammar: str) -> str:
    is_error, messages = llguidance.LLMatcher.validate_grammar_with_warnings(grammar)
    if is_error:
        raise _cannot_be_used(what, messages[0])
    return grammar


def _cannot_be_used(what: str, reason: str) -> BadRequestError:
    if (match := _CIRCLE_WITH_MORE.search(reason)) is not None:
        return BadRequestError(
            f'The {what} refers to itself by {match[1]!r} with other keys beside a "$ref" on the way.',
            "Put those keys into what it refers to.",
        )
    return BadRequestError(f"The {what} cannot be used: {_first_line(reason)}.")


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0].rstrip(".:")
