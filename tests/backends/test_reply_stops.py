"""Stop strings wait for the answer and find control tokens by id, with the same outcome on every backend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import echo
from backends.echo_options import EchoOptions
from backends.events import Finished, TextChunk
from backends.reply_stops import ReplyStops, reply_stops
from backends.requests import GenerationRequest, LoadRequest, Message
from models.reasoning import split
from tests.backends.tiny_gguf import write_tiny_gguf

ASKED = (Message("user", "?"),)

HARMONY = "<|channel|>analysis<|message|>a STOP<|end|><|start|>assistant<|channel|>final<|message|>"

# (opening of the template, what came before in the same reply, what comes, stops, what is let out, whether it stopped)
CASES = [
    ("", "", "<think>a STOP b</think>\n\nc STOP d", ("STOP",), "<think>a STOP b</think>\n\nc ", True),
    ("<think>", "", "a STOP b\n</think>\n\nc STOP d", ("STOP",), "a STOP b\n</think>\n\nc ", True),
    ("<think>", "", "a STOP b", ("STOP",), "a STOP b", False),
    ("<think>", "a S", "TOP b</think>c STOP", ("STOP",), "TOP b</think>c ", True),
    ("<think>", "a</think>c S", "d STOP e", ("STOP",), "d ", True),
    ("<think>", "a</think>", "STOP e", ("STOP",), "", True),
    ("<think>", "a", "</think>\n\nb\n\nc", ("\n\n",), "</think>\n\nb", True),
    ("<think>", "", "a</think>b</think>c", ("</think>",), "a</think>b", True),
    ("", "", "a STOP b", ("STOP",), "a ", True),
    ("", "", "\n\na", ("\n",), "", True),
    ("", "", "<thi", ("hi",), "<t", True),
    ("", "", "<thi", ("no",), "<thi", False),
    ("", "", " <think", ("x",), " <think", False),
    ("", "", f"{HARMONY}b STOP", ("STOP",), f"{HARMONY}b ", True),
    ("", "", "<|channel>thought\na STOP\n<channel|>b STOP", ("STOP",), "<|channel>thought\na STOP\n<channel|>b ", True),
    ("", "", "<think>a</think>b", (), "<think>a</think>b", False),
]  # fmt: skip


def request_for(before: str, stops: tuple[str, ...], **fields: bool) -> GenerationRequest:
    messages = (*ASKED, Message("assistant", before)) if before else ASKED
    return GenerationRequest(messages, stop=stops, **fields)  # type: ignore[arg-type]


def let_out(stops: ReplyStops, pieces: list[str]) -> tuple[str, bool]:
    out = ""
    for piece in pieces:
        out += stops.push(piece)
        if stops.matched:
            break
    return out + stops.flush(), stops.matched


@pytest.mark.parametrize(("opening", "before", "comes", "stops", "out", "stopped"), CASES)
def test_stops_wait_until_the_reasoning_has_closed_however_the_text_comes(
    opening: str, before: str, comes: str, stops: tuple[str, ...], out: str, stopped: bool
) -> None:
    request = request_for(before, stops)
    for size in (1, 2, 3, 7, len(comes)):
        pieces = [comes[at : at + size] for at in range(0, len(comes), size)]
        assert let_out(reply_stops(request, opening, f"assistant\n{opening}\n"), pieces) == (out, stopped), size


@pytest.mark.parametrize(("opening", "before", "comes", "stops", "out", "stopped"), CASES)
def test_the_echo_backend_stops_at_the_same_place(
    opening: str, before: str, comes: str, stops: tuple[str, ...], out: str, stopped: bool
) -> None:
    script = json.dumps(list(before + comes))
    options = EchoOptions.parse({"text": "script", "script": script, "rate": "max", "reasoning_opening": opening})
    backend = echo.EchoBackend(LoadRequest("echo", ""), options)
    messages = (*ASKED, Message("assistant", before, tuple(range(len(before))))) if before else ASKED
    events = list(backend.generate(GenerationRequest(messages, stop=stops, max_new_tokens=len(comes)), bool))
    assert "".join(event.text for event in events if isinstance(event, TextChunk)) == out
    assert isinstance(finished := events[-1], Finished)
    assert finished.reason == ("stop" if stopped else "length")


def test_one_switch_lets_them_count_inside_the_reasoning() -> None:
    request = request_for("", ("STOP",), stop_in_reasoning=True)
    assert let_out(reply_stops(request, "<think>", "<think>"), ["a ST", "OP b</think>c"]) == ("a ", True)


def test_a_prompt_written_by_hand_can_open_the_reasoning_itself() -> None:
    raw = GenerationRequest((Message("user", "q <think>"),), stop=("STOP",), raw=True)
    assert let_out(reply_stops(raw, "", "q <think>\n"), ["a STOP</think>b STOP"]) == ("a STOP</think>b ", True)
    assert let_out(reply_stops(raw, "<think>", "q"), ["a STOP"]) == ("a ", True), "no template wrote this prompt"


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "a", "S", "T", " ", "\n"]), max_size=14),
    st.sampled_from(["", "<think>"]),
)
def test_what_comes_out_is_the_text_up_to_the_first_stop_of_the_answer(pieces: list[str], opening: str) -> None:
    text, answer = "".join(pieces), split("".join(pieces), opening).answer
    out, stopped = let_out(reply_stops(request_for("", ("ST",)), opening, opening), pieces)
    assert stopped == ("ST" in answer)
    assert out == (text[: len(text) - len(answer) + answer.find("ST")] if stopped else text)


def test_a_hidden_token_is_matched_whole_and_never_shown() -> None:
    named = {7: "<|a|>", 8: "<|a|><|a|>"}

    def run(stops: tuple[str, ...], tokens: list[tuple[str, int]]) -> tuple[str, bool]:
        watch, out = ReplyStops(stops, named), ""
        for text, token in tokens:
            out += watch.push(text, token)
            if watch.matched:
                break
        return out + watch.flush(), watch.matched

    assert run(("<|a|>",), [("x", 1), ("", 7), ("y", 1)]) == ("x", True)
    assert run(("\n<|a|>b",), [("x\n", 1), ("", 7), ("b", 1)]) == ("x", True)
    assert run(("\n<|a|>b",), [("x\n", 1), ("", 7), ("c", 1)]) == ("x\nc", False)
    assert run(("<|a|><|a|>",), [("x", 1), ("", 8)]) == ("x", True)
    assert run(("|", "a"), [("x", 1), ("", 7), ("y", 1)]) == ("xy", False), "its name is no text"
    assert run(("<|a|>!",), [("x", 1), ("", 7)]) == ("x", False), "held to the end, and still not shown"


# The engines, on a tiny model with control tokens

CONTROL = ("<|eot_id|>", "<|im_start|>", "<|channel>", "<channel|>", "[THINK]", "[/THINK]")


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("stops") / "tiny.gguf", num_layers=1, control=CONTROL)


@pytest.fixture(params=["ring", "llamacpp"])
def pushed(request: pytest.FixtureRequest, model_path: Path) -> Iterator[object]:
    """Give a function that has a reply of one engine take in a text's tokens."""
    if request.param == "ring":
        pytest.importorskip("torch")
        from backends.ring.reply import Reply
        from models.model_files import ModelFiles
        from models.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(ModelFiles.open(model_path))

        def in_ring(wanted: GenerationRequest, prompt: str, text: str) -> tuple[str, str | None]:
            reply = Reply(wanted, tokenizer, tokenizer.encode(prompt))
            return taken(reply, tokenizer.encode(text))

        yield in_ring
        return
    pytest.importorskip("llama_cpp")
    from backends.llamacpp.library import Model
    from backends.llamacpp.reply import Reply as LlamaCppReply

    model = Model(model_path, False, lambda fraction: None)

    def in_llamacpp(wanted: GenerationRequest, prompt: str, text: str) -> tuple[str, str | None]:
        return taken(LlamaCppReply(model, wanted, model.encode(prompt), model.end_ids), model.encode(text))

    yield in_llamacpp
    model.close()


def taken(reply: object, tokens: list[int]) -> tuple[str, str | None]:
    out = ""
    for token in tokens:
        out += reply.push(token)  # type: ignore[attr-defined]
        if reply.end_reason is not None:  # type: ignore[attr-defined]
            break
    return out + reply.flush(), reply.end_reason  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("prompt", "text", "stops", "out", "reason"),
    [
        ("?", "ab<|eot_id|>cd", ("<|eot_id|>",), "ab", "stop"),
        ("?", "ab<|eot_id|>cd", (), "abcd", None),
        ("?", "ab\n<|im_start|>cd", ("\n<|im_start|>c",), "ab", "stop"),
        ("?", "ab<|im_start|>cd", ("start", "|"), "abcd", None),
        ("?", "ab<|im_start|>cd", ("<|im_start|>x",), "abcd", None),
        ("?", "<|channel>thought\na!<channel|>b!c", ("!",), "<|channel>thought\na!<channel|>b", "stop"),
        ("?", "[THINK]a!<|eot_id|>[/THINK]b<|eot_id|>c", ("!", "<|eot_id|>"), "[THINK]a![/THINK]b", "stop"),
        ("?[THINK]\n", "a![/THINK]b!c", ("!",), "a![/THINK]b", "stop"),
        ("?<|channel>thought\n", "a!<channel|>b!c", ("!",), "a!<channel|>b", "stop"),
        ("?<think>\n", "a!</think>b!c", ("!",), "a!</think>b", "stop"),
    ],
)
def test_both_engines_stop_at_hidden_tokens_and_after_the_reasoning(
    pushed: object, prompt: str, text: str, stops: tuple[str, ...], out: str, reason: str | None
) -> None:
    assert pushed(GenerationRequest(ASKED, stop=stops), prompt, text) == (out, reason)  # type: ignore[operator]
