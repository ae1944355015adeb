from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat_settings import ChatSettings
from app.presets import FIELDS, Presets
from backends.errors import BadRequestError
from backends.requests import CachePolicy, LoadRequest, Sampling

MINE = ChatSettings(LoadRequest("llamacpp", "/models/mine.gguf", num_threads=3, options={"rate": "5"}))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SETTINGS = st.builds(
    ChatSettings,
    load=st.builds(
        LoadRequest,
        backend=st.just("ring"),
        model=st.just("x"),
        policy=st.sampled_from(CachePolicy),
        window=st.integers(1, 10**9),
        sinks=st.none() | st.integers(0, 10**6),
    ),
    system_prompt=TEXT,
    sampling=st.builds(
        Sampling,
        temperature=st.floats(0, 100),
        top_k=st.none() | st.integers(1, 10**6),
        top_p=st.floats(0, 1),
        repetition_window=st.none() | st.integers(1, 10**6),
        seed=st.none() | st.integers(0, 2**64 - 1),
    ),
    stop=st.lists(TEXT, max_size=3).map(tuple),
    max_new_tokens=st.none() | st.integers(1, 10**9),
    keep_writing=st.booleans(),
)


@pytest.fixture
def presets(tmp_path: Path) -> Presets:
    return Presets(tmp_path / "presets")


@settings(max_examples=50, deadline=None)
@given(SETTINGS)
def test_a_preset_brings_back_how_to_write_and_leaves_with_what(
    tmp_path_factory: pytest.TempPathFactory, saved: ChatSettings
) -> None:
    presets = Presets(tmp_path_factory.mktemp("presets"))
    presets.save("mine", saved)
    load = replace(MINE.load, policy=saved.load.policy, window=saved.load.window, sinks=saved.load.sinks)
    assert presets.apply("mine", MINE) == replace(saved, load=load)


def test_a_preset_is_given_to_others_as_a_file(presets: Presets, tmp_path: Path) -> None:
    presets.save("Long novel", replace(MINE, system_prompt='Say "no".\n', stop=("\x7f",), keep_writing=True))
    text = presets.text("Long novel")
    assert 'system_prompt = "Say \\"no\\".\\n"' in text
    assert "models" not in text
    theirs = Presets(tmp_path / "theirs")
    assert theirs.add("Long novel.toml", text) == "Long novel"
    assert theirs.apply("Long novel", MINE) == presets.apply("Long novel", MINE)


def test_json_is_taken_as_well_and_so_is_a_part(presets: Presets) -> None:
    presets.add("warm", json.dumps({"temperature": 1.2, "top_k": None}))
    sampling = presets.apply("warm", MINE).sampling
    assert (sampling.temperature, sampling.top_k) == (1.2, None)
    assert presets.apply("warm", MINE).load == MINE.load


def test_names_are_listed_replaced_and_deleted(presets: Presets) -> None:
    assert presets.names() == []
    for name in ("b", "A", "川"):
        presets.save(name, MINE)
    presets.save("b", replace(MINE, keep_writing=True))
    assert presets.names() == ["A", "b", "川"]
    assert presets.apply("b", MINE).keep_writing
    presets.delete("b")
    presets.delete("b")
    assert presets.names() == ["A", "川"]
    with pytest.raises(BadRequestError, match="There is no preset 'b'"):
        presets.apply("b", MINE)


@pytest.mark.parametrize(
    "name", ["", " ", "..", "../x", "a/b", "a\\b", "/etc/x", ".hidden", "a\0b", "CON", "com1.x", "x" * 61]
)
def test_no_name_leads_out_of_the_folder(presets: Presets, name: str, tmp_path: Path) -> None:
    for act in (lambda: presets.save(name, MINE), lambda: presets.text(name), lambda: presets.delete(name)):
        with pytest.raises(BadRequestError, match="A preset cannot be called"):
            act()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("temperature = -1", "temperature of -1"),
        ("temperature = 'hot'", "temperature cannot be 'hot': give a number"),
        ("window = 0", "window cannot be 0: give a whole number of 1 or more"),
        ("model = '/etc/passwd'", "a preset does not set 'model'"),
        ("chat_template = 'x'", "a preset does not set 'chat_template'"),
        ("colour = 1", "a preset does not set 'colour'"),
        ("temperature = nan", "temperature of nan"),
        ("temperature", "The preset x was not understood"),
        ('{"temperature": ', "The preset x was not understood"),
        ("x" * 1_000_001, "is no preset"),
    ],
)
def test_a_preset_that_cannot_be_is_one_sentence_and_not_kept(presets: Presets, text: str, reason: str) -> None:
    with pytest.raises(BadRequestError, match=reason):
        presets.add("x", text)
    assert presets.names() == []


def test_a_file_spoilt_by_hand_is_named_and_the_others_work(presets: Presets, tmp_path: Path) -> None:
    presets.save("good", MINE)
    (tmp_path / "presets" / "bad.toml").write_text("window = 'wide'")
    assert presets.names() == ["bad", "good"]
    with pytest.raises(BadRequestError, match="The preset bad was not understood: window cannot be 'wide'"):
        presets.apply("bad", MINE)
    assert presets.apply("good", MINE) == MINE


def test_every_field_is_a_setting() -> None:
    from app.chat_settings import to_json

    assert set(FIELDS) < set(json.loads(to_json(MINE)))
