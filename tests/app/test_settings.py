from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat_settings import ChatSettings, chat_settings_from, from_json, to_json
from app.settings import BUILT_IN, DEFAULT_PORT, read_settings, settings_path, worker_log_path
from backends.requests import CachePolicy, LoadRequest, Sampling


def written(home: Path, text: str) -> Path:
    path = home / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_the_sliding_window_demo_is_chosen(isolated_home: Path) -> None:
    settings = read_settings()
    assert settings.defaults == BUILT_IN
    assert (BUILT_IN.load.backend, BUILT_IN.load.model) == ("ring", "gemma-3-270m")
    assert settings.notices == ()


def test_everything_moves_with_the_home(isolated_home: Path) -> None:
    assert settings_path() == isolated_home / "settings.toml"
    assert worker_log_path() == isolated_home / "worker.log"
    assert read_settings().database_path == isolated_home / "chats.sqlite"


def test_the_file_sets_defaults_folders_and_port(isolated_home: Path) -> None:
    written(
        isolated_home,
        """
        model_folders = ["~/models", "/srv/gguf"]
        port = 8123
        [defaults]
        backend = "llamacpp"
        model = "/srv/gguf/a.gguf"
        window = 1024
        sinks = "none"
        policy = "as trained"
        temperature = 0
        top_k = "none"
        stop = ["###"]
        max_new_tokens = 500
        keep_writing = true
        options = { rate = "max" }
        """,
    )
    settings = read_settings()
    assert settings.notices == ()
    assert settings.port == 8123
    assert settings.model_folders == (Path.home() / "models", Path("/srv/gguf"))
    assert settings.defaults == ChatSettings(
        LoadRequest(
            "llamacpp", "/srv/gguf/a.gguf", CachePolicy.AS_TRAINED, window=1024, sinks=None, options={"rate": "max"}
        ),
        sampling=Sampling(temperature=0, top_k=None),
        stop=("###",),
        max_new_tokens=500,
        keep_writing=True,
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("port = ", "Invalid value"),
        ("port = 0", "port 0 is outside 1 to 65535"),
        ("prot = 1", "there is no setting 'prot'"),
        ("[defaults]\nwindow = 0", "window cannot be 0: give a whole number of 1 or more"),
        ("[defaults]\nwidnow = 9", "there is no setting 'widnow'"),
        ("[defaults]\npolicy = 'rong'", "policy cannot be 'rong': choose from ring, as trained, full"),
        ("[defaults]\ntemperature = -1.0", "temperature of -1.0 is outside 0 to 100"),
        ("[defaults]\nkeep_writing = 1", "keep_writing cannot be 1: give true or false"),
        ("model_folders = 'a'", "model_folders is a list of folders"),
    ],
)
def test_a_file_that_is_not_understood_is_left_alone_and_named_with_the_reason(
    isolated_home: Path, text: str, reason: str
) -> None:
    path = written(isolated_home, text)
    settings = read_settings()
    assert (settings.defaults, settings.port) == (BUILT_IN, DEFAULT_PORT)
    (notice,) = settings.notices
    assert str(path) in notice
    assert reason in notice
    assert path.read_text(encoding="utf-8") == text


def test_a_file_that_is_not_text_is_named_too(isolated_home: Path) -> None:
    (isolated_home / "settings.toml").write_bytes(b"\xff\xfe\x00")
    assert "was not understood" in read_settings().notices[0]


@given(
    st.builds(
        ChatSettings,
        st.builds(
            LoadRequest,
            backend=st.sampled_from(["ring", "llamacpp", "echo"]),
            model=st.text(),
            policy=st.sampled_from(CachePolicy),
            window=st.integers(1, 10**6),
            kv_type=st.sampled_from(["auto", "int8", "fp8"]),
            sinks=st.none() | st.integers(0, 100),
            chat_template=st.none() | st.text().filter(lambda text: text != "none"),
            options=st.dictionaries(st.text(), st.text()),
        ),
        system_prompt=st.text(),
        sampling=st.builds(
            Sampling,
            temperature=st.floats(0, 100),
            top_k=st.none() | st.integers(1, 10**6),
            seed=st.none() | st.integers(0, 2**64 - 1),
        ),
        stop=st.lists(st.text()).map(tuple),
        max_new_tokens=st.none() | st.integers(1, 10**9),
        keep_writing=st.booleans(),
    )
)
def test_settings_come_back_from_json_as_they_were(settings: ChatSettings) -> None:
    assert from_json(to_json(settings), BUILT_IN) == settings


def test_kept_settings_of_another_version_lose_only_what_is_not_understood() -> None:
    kept = '{"window": 64, "policy": "spiral", "colour": "blue", "top_p": 7, "temperature": 0.5}'
    settings = from_json(kept, BUILT_IN)
    assert (settings.load.window, settings.load.policy) == (64, CachePolicy.RING)
    assert (settings.sampling.temperature, settings.sampling.top_p) == (0.5, 0.95)
    assert from_json("not json", BUILT_IN) == from_json("[1]", BUILT_IN) == BUILT_IN


def test_several_settings_at_once_change_only_themselves() -> None:
    settings = chat_settings_from({"window": 9, "seed": 4, "system_prompt": "Hi"}, BUILT_IN)
    assert (settings.load.window, settings.sampling.seed, settings.system_prompt) == (9, 4, "Hi")
    assert settings.load.model == BUILT_IN.load.model


@pytest.mark.parametrize("policy", list(CachePolicy))
def test_a_policy_is_taken_as_the_command_line_gives_it_and_as_files_do(policy: CachePolicy) -> None:
    for value in (policy, policy.value):
        assert chat_settings_from({"policy": value}, BUILT_IN).load.policy is policy
