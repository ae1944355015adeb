"""The estimate card: each of its numbers is what `models.sizing` says, and a window can be taken from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.proof.estimate import Surroundings, outlook
from app.proof.estimate_card import EstimateCard, estimate_card
from app.server import build_routes
from app.service import Service
from app.settings import ChatSettings, Settings
from backends.requests import CachePolicy, KVType, LoadRequest
from models.model_files import ModelFiles
from models.sizing import kv_element_bytes, policy_kv_bytes
from tests.backends.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("estimate") / "tiny.gguf"
    return write_tiny_gguf(path, sliding_window=32, sliding_pattern=2, num_layers=4)


def card_of(load: LoadRequest) -> EstimateCard:
    files, around = ModelFiles.open(load.model), Surroundings(free_bytes=10**9)
    return estimate_card(files, around, outlook(files, load, around))


@pytest.mark.parametrize(("backend", "kv_type"), [("ring", "auto"), ("ring", "int8"), ("llamacpp", "auto")])
def test_every_stop_of_the_slider_is_sizing_to_the_byte(tiny_gguf: Path, backend: str, kv_type: KVType) -> None:
    load = LoadRequest(backend, str(tiny_gguf), window=200, kv_type=kv_type, growing_context_tokens=7)
    files, card = ModelFiles.open(tiny_gguf), card_of(load)
    element = kv_element_bytes(load, on_gpu=False, encodings=tuple(files.weights.encodings))
    assert {32, 128, 192, 200, 256} <= {choice.window for choice in card.windows}
    assert card.tokens[0] == 100
    assert card.tokens[-1] == 1_000_000
    for choice in card.windows:
        at_window = replace(load, window=choice.window)
        ring, as_trained = choice.curves
        assert set(ring.num_bytes) == {choice.kv_bytes}  # flat, whatever the length
        for curve in (ring, as_trained):
            sized = replace(at_window, policy=CachePolicy(curve.policy), growing_context_tokens=0)
            expected = [policy_kv_bytes(files.config(), sized, tokens, element) for tokens in card.tokens]
            assert list(curve.num_bytes) == expected
    chosen = next(choice for choice in card.windows if choice.window == load.window)
    assert chosen.kv_bytes == card.outlook.kv_bytes
    assert chosen.total_bytes == card.outlook.total_bytes


def test_the_words_of_a_stop_name_its_own_window(tiny_gguf: Path) -> None:
    card = card_of(LoadRequest("ring", str(tiny_gguf), window=200))
    for choice in card.windows:
        assert any(f"W = {choice.window:,}" in sentence for sentence in choice.sentences)
        assert not any("iB" in sentence for sentence in choice.sentences)  # the page writes decimal units


def test_a_window_is_taken_from_the_card(tiny_gguf: Path, tmp_path: Path) -> None:
    defaults = ChatSettings(LoadRequest("ring", str(tiny_gguf), window=200))
    service = Service.open(Settings(defaults=defaults, data_folder=tmp_path))
    with TestClient(build_routes(service), base_url="http://127.0.0.1:7878") as page:
        assert page.get("/app/estimate").json()["card"]["window"] == 200
        page.post("/app/estimate/use", json={"window": 128})
        assert service.settings().load.window == 128
        assert page.get("/app/estimate").json()["card"]["window"] == 128
    service.apply_settings(replace(defaults, load=LoadRequest("echo", "")))
    with TestClient(build_routes(service), base_url="http://127.0.0.1:7878") as page:
        assert page.get("/app/estimate").json()["card"] is None
    service.close()
