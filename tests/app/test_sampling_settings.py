"""Settings of samplers and constraints as text: on the command line, in the page, in the store."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from app.chat_settings import ChatSettings, chat_settings_from, flat_settings, from_json, to_json
from app.sampling_options import takes_sampling
from app.sampling_text import logit_bias_lines, parse_logit_bias, read_breakers, spelled_breakers
from app.ui.settings_form import SettingsForm
from backends.errors import BadRequestError
from backends.requests import LoadRequest, Sampling

PLAIN = ChatSettings(LoadRequest("echo", ""))
EVERYTHING = replace(
    PLAIN,
    sampling=Sampling(
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias=((11, -math.inf), ("12", 1.5), (" a=b", -2.0)),
        typical_p=0.9,
        top_n_sigma=1.5,
        xtc_probability=0.5,
        xtc_threshold=0.2,
        dry_multiplier=0.8,
        dry_base=2.0,
        dry_allowed_length=3,
        dry_window=100,
        dry_breakers=("\n", "\\n", '"', "\t:"),
        mirostat_tau=5.0,
        mirostat_eta=0.2,
    ),
    stop=("STOP",),
    stop_in_reasoning=True,
    json_schema='{"type": "object"}',
)

biases = st.tuples(
    st.integers(0, 10**6) | st.text(min_size=1).filter(lambda text: "\n" not in text and "\r" not in text),
    st.sampled_from([-math.inf, -2.5, 0.25, 100.0]),
)


@given(st.lists(biases, max_size=4))
def test_logit_bias_is_read_back_from_its_lines(pairs: list[tuple[int | str, float]]) -> None:
    assert parse_logit_bias(logit_bias_lines(tuple(pairs))) == tuple(pairs)


@given(st.lists(st.text(min_size=1), max_size=4))
def test_breakers_are_read_back_from_one_line_each(breakers: list[str]) -> None:
    spelled = spelled_breakers(breakers)
    assert not any("\n" in line for line in spelled)
    assert read_breakers(spelled) == breakers


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("word", "logit bias 'word' has another form; write TOKEN=BIAS"),
        ("=3", "has another form"),
        ("word=much", "a logit bias of 'much' is no number"),
        ('"open=1', "which is no text in double quotes"),
    ],
)
def test_a_line_that_is_no_bias_is_refused_with_the_form(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_logit_bias([line])


def test_the_store_keeps_everything_as_strict_json() -> None:
    text = to_json(EVERYTHING)
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    assert from_json(text, PLAIN) == EVERYTHING
    assert chat_settings_from(flat_settings(EVERYTHING), PLAIN) == EVERYTHING


def test_settings_of_before_the_samplers_still_read_as_neutral() -> None:
    assert from_json('{"temperature": 0.5}', PLAIN).sampling == Sampling(temperature=0.5)


def test_a_grammar_takes_the_place_of_a_schema_and_both_at_once_are_refused() -> None:
    with_grammar = chat_settings_from({"grammar": "/a+/"}, EVERYTHING)
    assert (with_grammar.grammar, with_grammar.json_schema) == ("/a+/", None)
    assert chat_settings_from({"json_schema": "{}"}, with_grammar).grammar is None
    assert chat_settings_from({"json_schema": " "}, EVERYTHING).json_schema is None
    with pytest.raises(ValueError, match="cannot follow both"):
        chat_settings_from({"json_schema": "{}", "grammar": "/a/"}, PLAIN)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"json_schema": "{"}, "json_schema cannot be '{': it is not JSON: Expecting"),
        ({"json_schema": "3"}, "give an object such as"),
        ({"logit_bias": [[1.5, 2]]}, "is no pair of a token and a number"),
        ({"logit_bias": [[1, "nan"]]}, "logit bias of 1 of nan is outside -1000 to 1000"),
        ({"dry_window": 0}, "dry_window cannot be 0: give a whole number of 1 or more"),
        ({"dry_window": -2}, "dry_window cannot be -2: give a whole number of 1 or more"),
        ({"typical_p": math.nan}, "typical-p of nan is outside 0 to 1"),
        ({"mirostat_tau": "some"}, "mirostat_tau cannot be 'some': give a number"),
    ],
)
def test_what_a_setting_cannot_be_is_said(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chat_settings_from(table, PLAIN)


def given_by(*arguments: str) -> dict[str, Any]:
    """Return what a command with the shared options takes from its arguments."""
    seen: dict[str, Any] = {}
    command = typer.Typer()

    @command.command()
    @takes_sampling
    def take(tokens: int = 0, **sampling: Any) -> None:
        seen.update(sampling, tokens=tokens)

    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0, result.output
    return seen


def test_options_of_the_command_line_become_settings(tmp_path: Path) -> None:
    schema = tmp_path / "person.json"
    schema.write_text('{"type": "object"}', encoding="utf-8")
    arguments = (
        "--tokens 3 --top-k none --top-p 0.5 --min-p 0.1 --repetition-penalty 1.2 --repetition-window 40 "
        "--presence-penalty -0.5 --logit-bias word=-inf --logit-bias 11=2 --dry-multiplier 0.8 --dry-breaker \\n "
        f"--top-n-sigma 1.5 --mirostat-tau 5 --json-schema {schema}"
    )
    taken = given_by(*arguments.split(" "))
    assert taken.pop("tokens") == 3
    settings = chat_settings_from(taken, PLAIN)
    assert settings.sampling == Sampling(
        top_k=None,
        top_p=0.5,
        min_p=0.1,
        repetition_penalty=1.2,
        repetition_window=40,
        presence_penalty=-0.5,
        logit_bias=(("word", -math.inf), (11, 2.0)),
        dry_multiplier=0.8,
        dry_breakers=("\n",),
        top_n_sigma=1.5,
        mirostat_tau=5.0,
    )
    assert settings.json_schema == '{"type": "object"}'
    json.dumps(taken, allow_nan=False)  # a running instance is sent them as JSON


def test_nothing_given_changes_nothing() -> None:
    assert given_by() == {"tokens": 0}


@pytest.fixture(scope="module")
def form() -> Iterator[SettingsForm]:
    import gradio as gr

    with gr.Blocks():
        yield SettingsForm()


def values_of(form: SettingsForm, settings: ChatSettings, **changes: Any) -> list[Any]:
    shown = dict(zip(form.names, form.shown(settings, []), strict=True))
    chosen = {"model": settings.load.model, "device": settings.load.device}  # shown as updates of their controls
    return list({**shown, **chosen, **changes}.values())


@pytest.mark.parametrize(
    "settings", [PLAIN, EVERYTHING, replace(PLAIN, grammar="/a+/")], ids=["plain", "all", "grammar"]
)
def test_the_form_gives_back_what_it_shows(form: SettingsForm, settings: ChatSettings) -> None:
    assert form.settings(values_of(form, settings), settings) == settings


def test_an_emptied_number_that_always_holds_one_stays(form: SettingsForm) -> None:
    values = values_of(form, EVERYTHING, dry_allowed_length=None, mirostat_tau=None)
    sampling = form.settings(values, EVERYTHING).sampling
    assert (sampling.dry_allowed_length, sampling.mirostat_tau) == (3, None)


@pytest.mark.parametrize("name", ["top_k", "repetition_window", "dry_window", "max_new_tokens"])
@pytest.mark.parametrize("written", [None, "none", -1, -1.0])
def test_no_limit_may_be_written_in_each_of_the_usual_ways(name: str, written: object, form: SettingsForm) -> None:
    settings = chat_settings_from({name: written}, PLAIN)
    assert flat_settings(settings)[name] is None
    assert form.settings(values_of(form, settings), settings) == settings
    if not isinstance(written, str):
        assert form.settings(values_of(form, PLAIN, **{name: written}), PLAIN) == settings


def test_a_window_of_dry_may_be_larger_than_any_context() -> None:
    assert chat_settings_from({"dry_window": 1_000_000}, PLAIN).sampling.dry_window == 1_000_000
    for written, window in (("none", None), ("-1", None), ("100000", 100_000)):
        given = given_by("--dry-window", written)
        del given["tokens"]
        assert chat_settings_from(given, EVERYTHING).sampling.dry_window == window


def test_the_form_says_what_a_line_should_be(form: SettingsForm) -> None:
    with pytest.raises(BadRequestError, match=r"^Logit bias 'x' has another form"):
        form.settings(values_of(form, PLAIN, logit_bias="x"), PLAIN)
