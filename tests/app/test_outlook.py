"""What is said before loading: from real files where they are here, and one sentence where something is in the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.chat_settings import ChatSettings
from app.demo_run import DEMO_WINDOW_TOKENS, start_demo
from app.outlook import model_choices, outlook
from backends import registry
from backends.requests import CachePolicy, LoadRequest
from models.demo import DEMOS
from tests.app.conftest import EchoService


def settings(model: str, backend: str = "ring", window: int = 512) -> ChatSettings:
    return ChatSettings(LoadRequest(backend, model, window=window))


@pytest.fixture
def without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which neither engine's library is installed."""
    for name in ("ring", "llamacpp"):
        entry = replace(registry.BACKENDS[name], libraries=("no_such_library",))
        monkeypatch.setitem(registry.BACKENDS, name, entry)


def test_a_demo_still_to_be_fetched_says_so_with_its_size_and_licence(tmp_path: Path) -> None:
    seen = outlook(settings("gemma-3-270m"), tmp_path)
    assert "238 MB, Gemma Terms of Use" in seen.notes[0]
    assert seen.continues_text
    assert seen.estimate is None


@pytest.mark.usefixtures("without_libraries")
@pytest.mark.parametrize("backend", ["ring", "llamacpp"])
def test_a_backend_that_is_not_installed_comes_with_the_exact_command(tmp_path: Path, backend: str) -> None:
    seen = outlook(settings("gemma-3-270m", backend), tmp_path)
    assert "not installed" in seen.problem
    assert seen.hint == registry.BACKENDS[backend].install_command


def test_a_missing_file_and_a_file_that_is_no_model_are_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    for model in (str(tmp_path / "nothing.gguf"), str(broken)):
        seen = outlook(settings(model), tmp_path)
        assert Path(model).name in seen.problem
        assert seen.estimate is None


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for m in messages %}", "broken at line 1"),
        ("{{ raise_exception('no chats today') }}", "no chats today"),
        ("{% if false %}{% endif %}", "writes nothing"),
        ("tool_use", "no chat template named 'tool_use'"),
    ],
)
def test_a_template_by_hand_that_cannot_be_used_is_told_of_before_anything_is_sent(
    gemma_path: Path, template: str, said: str
) -> None:
    given = ChatSettings(LoadRequest("ring", str(gemma_path), chat_template=template))
    assert said in outlook(given, Path("nowhere")).problem


def test_echo_needs_nothing(tmp_path: Path) -> None:
    seen = outlook(settings("", "echo"), tmp_path)
    assert (seen.problem, seen.estimate) == ("", None)
    assert seen.openings


@pytest.mark.real_model
def test_the_real_gemma_is_weighed_and_offered_beginnings(gemma_path: Path) -> None:
    seen = outlook(settings(str(gemma_path)), Path("nowhere"))
    assert seen.estimate is not None
    assert seen.estimate.kv_bytes is not None
    assert seen.continues_text
    assert seen.estimate.kv_full_bytes[1_000_000] > 1_000 * seen.estimate.kv_bytes
    assert any("approximation" in note for note in seen.notes)


def test_the_demo_models_are_always_on_the_list(tmp_path: Path) -> None:
    assert [choice.model for choice in model_choices(tmp_path, [])][: len(DEMOS)] == list(DEMOS)


@pytest.mark.usefixtures("without_libraries")
def test_the_demo_and_a_change_in_its_chat_leave_the_rest_of_what_new_chats_begin_with(
    echo_service: EchoService,
) -> None:
    service = echo_service()
    before = service.settings()
    run = start_demo(service)
    service.stop(run.chat_id)
    assert run.wait_until_finished(60)
    assert service.settings() == before
    assert service.settings(service.create_chat().id) == before
    assert service.settings(service.create_chat(kind="notebook").id) == before
    service.apply_settings(replace(service.settings(run.chat_id), system_prompt="Be brief."), run.chat_id)
    assert service.settings() == replace(before, system_prompt="Be brief.")


@pytest.mark.usefixtures("without_libraries")
def test_the_demo_run_works_without_any_engine(echo_service: EchoService) -> None:
    service = echo_service()
    run = start_demo(service)
    used = service.settings(run.chat_id)
    assert (used.load.backend, used.load.window, used.load.policy) == ("echo", DEMO_WINDOW_TOKENS, CachePolicy.RING)
    assert used.keep_writing
    service.stop(run.chat_id)
    assert run.wait_until_finished(60)
