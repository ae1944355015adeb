"""Replies that follow a JSON schema or a grammar, from random weights: only the constraint can make them right."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from backends import registry
from backends.contract import Backend
from backends.errors import BackendUnavailableError, BadRequestError
from backends.events import Finished, TextChunk
from backends.requests import GenerationRequest, LoadRequest, Message, Sampling
from models.constraint import Constraints
from tests.backends.tiny_gguf import write_tiny_gguf

pytest.importorskip("llguidance")

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
WILD = Sampling(temperature=1.0, top_k=None, top_p=1.0)
END = 4


@pytest.fixture(scope="module", params=["ring", "llamacpp"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    if registry.BACKENDS[request.param].missing_libraries():
        pytest.skip(f"{request.param} not installed")
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", architecture="llama", num_layers=1)
    loaded = registry.load(LoadRequest(request.param, str(path), device="cpu", num_threads=1), lambda progress: None)
    yield loaded
    loaded.close()


def reply(backend: Backend, request: GenerationRequest) -> tuple[str, tuple[int, ...], Finished]:
    events = list(backend.generate(request, lambda: False))
    chunks = [event for event in events if isinstance(event, TextChunk)]
    assert isinstance(events[-1], Finished)
    ids = tuple(token for chunk in chunks for token in chunk.token_ids)
    return "".join(chunk.text for chunk in chunks), ids, events[-1]


def ask(seed: int = 1, **fields: object) -> GenerationRequest:
    request = GenerationRequest((Message("user", "Who?"),), replace(WILD, seed=seed), max_new_tokens=2000)
    return replace(request, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_a_reply_is_json_that_the_schema_allows_and_ends_there_even_when_told_to_keep_writing(
    backend: Backend, seed: int
) -> None:
    text, _, finished = reply(backend, ask(seed, json_schema=json.dumps(SCHEMA), ignore_end=True))
    content = json.loads(text)
    assert list(content) == ["name", "age", "likes"]
    assert len(content["name"]) <= 6
    assert 0 <= content["age"] <= 99
    assert set(content["likes"]) <= {"tea", "rain"}
    assert finished.reason == "stop"


@pytest.mark.parametrize(
    ("grammar", "expected"),
    [
        ("/[a-c]{3,9}!/", "[a-c]{3,9}!"),
        ('start: "yes" | "no" "!"*', "yes|no!*"),
        ('root ::= ("ab" | "cd")+ "."', r"(ab|cd)+\."),
    ],
    ids=["regular expression", "Lark", "GBNF"],
)
def test_a_reply_follows_a_grammar_in_each_of_three_notations(backend: Backend, grammar: str, expected: str) -> None:
    for seed in range(3):
        text, _, finished = reply(backend, ask(seed, grammar=grammar))
        assert re.fullmatch(expected, text)
        assert finished.reason == "stop"


def test_a_stopped_reply_goes_on_within_its_schema(backend: Backend) -> None:
    whole, _, _ = reply(backend, ask(2, json_schema=json.dumps(SCHEMA)))
    text, ids, finished = reply(backend, ask(2, json_schema=json.dumps(SCHEMA), max_new_tokens=7))
    assert finished.reason == "length"
    so_far = (Message("user", "Who?"), Message("assistant", text, ids))
    rest, _, _ = reply(backend, ask(2, json_schema=json.dumps(SCHEMA), messages=so_far))
    assert json.loads(text + rest) == json.loads(whole)


NODE = {"type": "object", "additionalProperties": False}
RECURSIVE = {
    "children": {**NODE, "properties": {"in": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}}},
    "a list": {
        "$defs": {
            "node": {
                **NODE,
                "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
                "required": ["next"],
            }
        },
        "$ref": "#/$defs/node",
    },
    "either": {"anyOf": [{"type": "array", "items": {"$ref": "#"}, "minItems": 1, "maxItems": 2}, {"const": 7}]},
    "anything": True,
}


@pytest.mark.parametrize("name", RECURSIVE)
def test_a_schema_that_refers_to_itself_is_followed_where_its_texts_can_end(backend: Backend, name: str) -> None:
    schema = json.dumps(RECURSIVE[name])
    text, _, finished = reply(backend, ask(3, json_schema=schema, max_new_tokens=4000))
    assert finished.reason == "stop", text
    json.loads(text)


def test_the_next_reply_is_free_again(backend: Backend) -> None:
    free, _, _ = reply(backend, ask(5, max_new_tokens=8))
    reply(backend, ask(5, grammar="/a{3}/"))
    assert reply(backend, ask(5, max_new_tokens=8))[0] == free


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"json_schema": '{"type": '}, "The JSON schema is not JSON: Expecting value"),
        ({"json_schema": "3"}, "The JSON schema is not an object"),
        ({"json_schema": '{"type": "chicken"}'}, "The JSON schema cannot be used: Invalid type: chicken"),
        ({"grammar": "/(ab/"}, "The grammar cannot be used: .*regex"),
        ({"grammar": "start: missing"}, 'The grammar cannot be used: .*unknown name: "missing"'),
        ({"grammar": "root ::= ("}, "The grammar cannot be used: "),
        ({"grammar": "start: start"}, "The grammar allows no text at all"),
        ({"json_schema": "false"}, "The JSON schema is not an object"),
        ({"json_schema": '{"x":' * 100_000 + "1" + "}" * 100_000}, "The JSON schema is nested too deeply"),
        ({"json_schema": '{"$ref": "#"}'}, "The JSON schema refers to itself by '#' so that no text of it ever ends"),
        (
            {"json_schema": '{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}'},
            "The JSON schema refers to itself by '#/[$]defs/a' so that no text of it ever ends",
        ),
        (
            {"json_schema": '{"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#"}}}'},
            "The JSON schema refers to itself by '#' so that no text of it ever ends",
        ),
        (
            {"json_schema": '{"type": "array", "items": {"$ref": "#"}, "minItems": 1}'},
            "The JSON schema refers to itself by '#' so that no text of it ever ends",
        ),
        (
            {
                "json_schema": '{"$defs": {"n": {"anyOf": [{"$ref": "#/$defs/n", "type": "object"}, {}]}},'
                '"$ref": "#/$defs/n"}'
            },
            "The JSON schema refers to itself by '#/[$]defs/n' with other keys beside",
        ),
    ],
    ids=lambda value: str(value)[:80],
)
def test_a_wrong_schema_or_grammar_is_refused_in_one_sentence(
    backend: Backend, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(BadRequestError, match=message) as caught:
        reply(backend, replace(ask(), **fields))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert reply(backend, ask(max_new_tokens=2))[2].num_generated_tokens <= 2


def test_a_reply_that_does_not_follow_the_grammar_is_not_continued(backend: Backend) -> None:
    messages = (Message("user", "Who?"), Message("assistant", "xyz"))
    with pytest.raises(BadRequestError, match="The reply so far does not follow the grammar"):
        reply(backend, ask(grammar="/a+/", messages=messages))


@pytest.mark.parametrize(
    ("text", "follows"),
    [('{"a":1}', True), ('{"a": 1, "b": 2}', True), ('{\n  "a": 1\n}', True), ("{ \n", False), ("{\n\n", False)],
)
def test_json_may_be_compact_or_indented_and_never_space_without_end(text: str, follows: bool) -> None:
    """Gemma 3 270M, left to itself, writes blank lines after the first brace until it is stopped."""
    pieces = [bytes([byte]) for byte in range(256)]
    constraints = Constraints(lambda text: list(text.encode()), pieces.__getitem__, 256, [END])
    constraint = constraints.open(ask(json_schema='{"type": "object"}'))
    assert constraint is not None
    assert constraint.takes(list(text.encode())) is follows


def test_the_end_may_come_only_where_the_text_is_complete() -> None:
    pieces = [b"a", b"b", b"ab", b"", b"</s>", b"c"]
    constraints = Constraints(lambda text: [], pieces.__getitem__, len(pieces), [END])
    constraint = constraints.open(ask(grammar="/a(b|c)?/"))
    assert constraint is not None
    allowed = []
    for token in (0, 1):
        allowed.append(constraint.allowed().nonzero()[0].tolist())
        constraint.push(token)
    assert [*allowed, constraint.allowed().nonzero()[0].tolist()] == [[0, 2], [1, END, 5], [END]]
    assert constraints.open(ask()) is None


@pytest.mark.parametrize("encode", [lambda text: [], lambda text: [3, 0]], ids=["nothing", "with a space in front"])
def test_text_that_must_come_is_spelled_exactly_however_the_tokenizer_spells_it(
    encode: Callable[[str], list[int]],
) -> None:
    pieces = [b"a", b"b", b"ab", b" ", b"</s>"]
    constraint = Constraints(encode, pieces.__getitem__, len(pieces), [END]).open(ask(grammar="/(ab)+/"))
    assert constraint is not None
    assert constraint.allowed().nonzero()[0].tolist() == [2]
    constraint.push(2)
    assert END in constraint.allowed().nonzero()[0]


def test_a_reply_a_person_wrote_in_is_spelled_as_text_though_it_spells_a_control_token() -> None:
    pieces = [b"a", b"<", b"/s>", b"", b"</s>"]
    constraints = Constraints(lambda text: [END] if text == "</s>" else [], pieces.__getitem__, len(pieces), [END])
    mended = Message("assistant", "a</s>", pieces=((0,), "</s>"))
    constraint = constraints.open(ask(grammar="/a<.s>a/", messages=(Message("user", "Who?"), mended)))
    assert constraint is not None
    assert constraint.allowed().nonzero()[0].tolist() == [0]


def test_without_the_library_the_command_that_adds_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    constraints = Constraints(lambda text: [], lambda token: b"a", 2, [1])
    with pytest.raises(BackendUnavailableError, match=r"need llguidance.* pip install .*ringside\[grammar\]"):
        constraints.open(ask(grammar="/a/"))


def test_the_echo_backend_says_that_it_follows_none() -> None:
    echo = registry.load(LoadRequest("echo", "", options={"rate": "max"}), lambda progress: None)
    with pytest.raises(BadRequestError, match="follows no JSON schema or grammar"):
        reply(echo, ask(grammar="/a/"))
