"""A chat template that overdoes it, from a chat or a model's file, gives one sentence; page and model go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from fastapi.testclient import TestClient

from app.server import build_routes
from app.service import Service
from backends import registry
from backends.requests import LoadRequest, Sampling
from models.templates.process import Limits, processes
from models.templates.traits import traits_of
from tests.app.conftest import EchoService
from tests.backends.tiny_gguf import write_tiny_gguf
from tests.models.hostile_templates import TOO_LARGE, TOO_MUCH_MEMORY, TOO_SLOW
from tests.models.test_template_process import ENDLESS, renderers

PATIENCE_S = 120
ONE_OF_EACH = {
    "large": TOO_LARGE["wide number, at the page"],
    "slow": TOO_SLOW["macros that call macros"],
    "memory": TOO_MUCH_MEMORY["a growing list"],
    "lorem": "{{ lipsum(n=20000) }}",
}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Little time for templates in this process, and nothing remembered of them."""
    traits_of.cache_clear()
    monkeypatch.setattr(Limits, "for_chat", lambda num_characters: Limits(cpu_s=1))
    yield
    traits_of.cache_clear()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf", "llama")


def with_template(service: Service, model: Path, template: str, backend: str = "ring") -> int:
    """Return a chat that brings a template."""
    settings = service.settings()
    load = LoadRequest(backend, str(model), device="cpu", window=64, chat_template=template)
    chat = service.create_chat("theirs").id
    service.apply_settings(
        replace(settings, load=load, sampling=Sampling(temperature=0.0), max_new_tokens=2, keep_writing=True), chat
    )
    return chat


@pytest.mark.parametrize("template", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_a_chat_that_brings_a_hostile_template_opens_with_one_sentence(
    echo_service: EchoService, model: Path, template: str
) -> None:
    service = echo_service()
    chat = with_template(service, model, template)
    with TestClient(build_routes(service), base_url="http://127.0.0.1:7878") as page:
        for _ in range(2):
            seen = page.get(f"/app/outlook?chat={chat}")
            assert seen.status_code == 200
            assert seen.json()["problem"].startswith("The chat template of these settings ")
            assert page.get(f"/app/estimate?chat={chat}").json()["card"] is not None
        fine = with_template(service, model, "{{ messages[0].content }}")
        assert page.get(f"/app/outlook?chat={fine}").json()["problem"] == ""


def test_other_requests_are_answered_while_a_template_renders(
    echo_service: EchoService, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "for_chat", lambda num_characters: Limits(cpu_s=600, wall_s=600))
    service = echo_service()
    chat, fine = with_template(service, model, ENDLESS), with_template(service, model, "{{ messages[0].content }}")
    processes.close()  # so that a new one shows
    before, problems = renderers(), []
    with TestClient(build_routes(service), base_url="http://127.0.0.1:7878") as page:
        asking = threading.Thread(
            target=lambda: problems.append(page.get(f"/app/outlook?chat={chat}").json()["problem"])
        )
        asking.start()
        while not (busy := renderers() - before) and asking.is_alive():
            pass
        try:
            assert page.get("/app/chats").status_code == 200
            assert page.get(f"/app/outlook?chat={fine}").json()["problem"] == ""
            assert asking.is_alive()
        finally:
            for pid in busy:
                psutil.Process(pid).kill()
            asking.join(PATIENCE_S)
        assert problems[0].startswith("The chat template of these settings cannot be used: it ")


@pytest.mark.parametrize("backend", ["ring", "llamacpp"])
def test_a_model_says_what_is_wrong_with_its_template_and_goes_on(
    echo_service: EchoService, model: Path, backend: str
) -> None:
    if registry.BACKENDS[backend].missing_libraries():
        pytest.skip("not installed")
    service = echo_service()
    hanging = "{% if messages[0].content == 'hang' %}" + ENDLESS + "{% endif %}{{ messages[0].content }}"
    for template, words, error in (
        (ENDLESS, "hello", "cannot be used: it takes longer than 5 seconds."),
        (hanging, "hello", ""),
        (hanging, "hang", "does not take this chat: it takes longer than 5 seconds."),
        (hanging, "hello", ""),
    ):
        run = service.send(with_template(service, model, template, backend), words)
        assert run.wait_until_finished(PATIENCE_S)
        assert error in run.view().error
        assert (run.view().reason == "length") == (not error), run.view()
