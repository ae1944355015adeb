"""A chat as the token ids a model continues: the same for every backend, whatever does the tokenising.

Replies come back as the very ids the model produced, not as their text tokenised again: half a word stays the same half
word, and the keys already in the cache stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from backends.errors import BadRequestError
from backends.requests import Message
from models.chat_template import ChatTemplate
from models.control_text import ControlTexts, Disguise

Encode = Callable[[str], list[int]]
"""Ids of a text: special tokens spelled in it become those tokens, and no BOS is added."""

Decode = Callable[[Sequence[int]], str]
"""Text of ids, control tokens hidden."""

NO_CONTROL_TEXTS = ControlTexts()

_TURN_BREAK = "\n\n"
_ANCHORS = ("\n", ".", "a")


def build_prompt(
    messages: Sequence[Message],
    template: ChatTemplate | None,
    encode: Encode,
    bos_id: int | None,
    adds_bos: bool,
    decode: Decode | None = None,
    raw: bool = False,
    control_texts: ControlTexts = NO_CONTROL_TEXTS,
) -> list[int]:
    """Return the ids of a chat, ready for the next reply.

    If the last message is the assistant's, the ids end exactly where it ends, so that the reply goes on from there.
    Without a template (a base model) the texts simply follow one another, and control tokens spelled in them become
    those tokens: a person who writes the whole text has no other way to write one.

    Args:
        messages: oldest first; replies with ids are spliced in as those where the template leaves them whole.
        template: None for a base model.
        encode: see `Encode`.
        bos_id: the token that begins a sequence; None where there is none.
        adds_bos: whether the model expects it; it is put first unless the template wrote it, and nowhere else.
        decode: text of ids. Where it is given, ids that say more than their message's text (it was cut at a stop
            string, or edited) give way to the text.
        raw: the texts follow one another with nothing between them, whatever the template.
        control_texts: spellings that become control tokens only where the template writes them.

    Raises:
        BadRequestError: the template refuses these messages.
    """
    if decode is not None:
        messages = [_with_honest_ids(message, decode) for message in messages]
    if raw or template is None:
        ids = _encode_pieces(_continued_text(messages, "" if raw else _TURN_BREAK), encode)
    else:
        disguise = Disguise(control_texts, [template.source, *(message.text for message in messages)])
        pieces = _chat_pieces([disguise.put_on(message) for message in messages], template)
        ids = _encode_pieces(pieces, encode, disguise)
    if adds_bos and bos_id is not None and ids[:1] != [bos_id]:
        ids.insert(0, bos_id)
    return ids


def plain_ids(text: str, encode: Encode, bos_id: int | None, adds_bos: bool) -> list[int]:
    """Return a text as it stands, with the token that begins one where the model has it, and no template."""
    return ([bos_id] if adds_bos and bos_id is not None else []) + encode(text)


def num_pinned(messages: Sequence[Message], prompt_ids: Callable[[Sequence[Message]], list[int]]) -> int:
    """Return how many leading tokens the system prompt takes, what the template puts around it included.

    That is what two chats have in common that share a system prompt and nothing else.

    Args:
        prompt_ids: `build_prompt` for the model at hand.
    """
    system = [message for message in messages[:1] if message.role == "system"]
    if not system:
        return 0
    one, other = (prompt_ids([*system, Message("user", text)]) for text in ("0", "Yes?"))
    return _num_common(one, other)


def num_before_last(messages: Sequence[Message], prompt_ids: Callable[[Sequence[Message]], list[int]]) -> int:
    """Return how many leading tokens of a chat's prompt do not depend on what its last message of a person says.

    Args:
        prompt_ids: `build_prompt` for the model at hand.
    """
    last = max((place for place, message in enumerate(messages) if message.role == "user"), default=None)
    if last is None:
        return 0
    before = list(messages[:last])
    one, other = (prompt_ids([*before, Message("user", text)]) for text in ("0", "Yes?"))
    return _num_common(one, other)


def _num_common(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _with_honest_ids(message: Message, decode: Decode) -> Message:
    if message.token_ids is None:
        return message
    said = decode(message.token_ids).rstrip("\ufffd")  # a character that the end cut is no difference
    # A first token is spelled with its space in the middle of a text, and without it at the start of one.
    is_honest = said in (message.text.rstrip("\ufffd"), message.text.rstrip("\ufffd").removeprefix(" "))
    return message if is_honest else replace(message, token_ids=None)


def text_of(content: object) -> str:
    """Return the text of a message's content as clients send it: a string, nothing, or a list of text parts.

    Raises:
        BadRequestError: a part is of a kind other than text.
    """
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "".join(_text_of_part(part) for part in content)
        case _:
            raise BadRequestError(f"A message cannot be made of a {type(content).__name__}.", "Send text.")


def _text_of_part(part: object) -> str:
    match part:
        case str():
            return part
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": kind}:
            raise BadRequestError(f"A message part of type {kind!r} is not text, which is all this model takes.")
        case _:
            raise BadRequestError(f"A message part has no type: {part!r}.")


def _continued_text(messages: Sequence[Message], turn_break: str) -> list[str | tuple[int, ...]]:
    """Return the texts one after the other, with `turn_break` wherever someone else's text ends and a new one begins.

    Only a user's text flows straight into the reply that continues it.
    """
    pieces: list[str | tuple[int, ...]] = []
    for place, message in enumerate(messages):
        if place and not (message.role == "assistant" and messages[place - 1].role == "user"):
            pieces.append(turn_break)
        pieces.extend(message.known_pieces or (message.text,))
    return pieces


def _chat_pieces(messages: Sequence[Message], template: ChatTemplate) -> list[str | tuple[int, ...]]:
    """Return the rendered chat, cut where replies are known as ids."""
    known = [place for place, message in enumerate(messages) if message.known_pieces]
    plain = _render(messages, template)
    for places in (known, [place for place in known if _stays_whole(messages, template, plain, [place])]):
        if places and (pieces := _spliced(messages, template, plain, places)) is not None:
            return pieces
    return [plain]


def _render(messages: Sequence[Message], template: ChatTemplate) -> str:
    return template.render(messages, add_generation_prompt=True, continue_last=True)


def _stays_whole(messages: Sequence[Message], template: ChatTemplate, plain: str, places: list[int]) -> bool:
    return _spliced(messages, template, plain, places) is not None


def _spliced(
    messages: Sequence[Message], template: ChatTemplate, plain: str, places: list[int]
) -> list[str | tuple[int, ...]] | None:
    """Return the rendering with the replies at these places as ids; None if the template changes or drops one.

    Each reply is rendered as a marker. Where markers replaced by texts give the plain rendering, the template copies
    these replies as they are, and what lies between the markers is all that needs tokenising.
    """
    markers = _markers(messages, len(places))
    marked = list(messages)
    for marker, place in zip(markers, places, strict=True):
        marked[place] = replace(messages[place], text=marker)
    rest = _render(marked, template)
    pieces: list[str | tuple[int, ...]] = []
    texts: list[str] = []
    for marker, place in zip(markers, places, strict=True):
        before, found, rest = rest.partition(marker)
        if not found or (known := messages[place].known_pieces) is None:
            return None
        pieces += [before, *known]
        texts += [before, messages[place].text]
    return [*pieces, rest] if "".join([*texts, rest]) == plain else None


def _markers(messages: Sequence[Message], count: int) -> list[str]:
    """Return texts that stand in no message; private-use characters, which templates neither trim nor split at."""
    fence = "\ue000"
    while any(fence in message.text for message in messages):
        fence += "\ue000"
    return [f"{fence}{number}\ue001" for number in range(count)]


def _encode_pieces(
    pieces: Sequence[str | tuple[int, ...]], encode: Encode, disguise: Disguise | None = None
) -> list[int]:
    ids: list[int] = []
    for piece in _joined_texts(pieces):
        if isinstance(piece, str):
            text = _without_lone_surrogates(piece)
            for part in (text,) if disguise is None else disguise.parts(text):
                ids.extend(_encode_after(part, encode) if ids else encode(part))
        else:
            ids.extend(piece)
    return ids


def _without_lone_surrogates(text: str) -> str:
    """Replace halves of characters, which JSON can carry and no tokenizer takes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _joined_texts(pieces: Sequence[str | tuple[int, ...]]) -> list[str | tuple[int, ...]]:
    """Join neighbouring texts, which may share tokens, and drop empty pieces."""
    joined: list[str | tuple[int, ...]] = []
    for piece in pieces:
        if joined and isinstance(piece, str) and isinstance(last := joined[-1], str):
            joined[-1] = last + piece
        elif piece:
            joined.append(piece)
    return joined


def _encode_after(text: str, encode: Encode) -> list[int]:
    """Tokenise text that follows other tokens, where no space is to be put in front of it.

    Some SentencePiece models spell a text with a space before its first word. To be rid of it the text is tokenised
    behind an anchor that it does not merge with (transformers' chat encoding does the same).
    """
    if len(encode("\n")) == len(encode("a\n")) - len(encode("a")):
        return encode(text)
    for anchor in _ANCHORS:
        before, both = encode(anchor), encode(anchor + text)
        if both[: len(before)] == before:
            return both[len(before) :]
    return encode(text)
