"""Measurements behind the page, on the echo backend with its real workers, through the routes the page uses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.proof.background import HELD_FOR, Measurements, Seen
from app.server import build_routes
from app.service import Service
from backends.errors import BadRequestError
from tests.app.conftest import EchoService
from tests.backends.tiny_gguf import write_tiny_gguf

HOST = "http://127.0.0.1:7878"
PATIENCE_S = 120  # each process that measures or writes imports for a second, on a busy machine for many
RUNS = [{"backend": "echo", "policy": policy, "window": 32} for policy in ("ring", "full")]


def client(service: Service) -> TestClient:
    return TestClient(build_routes(service), base_url=HOST)


def asked(page: TestClient, path: str, **values: Any) -> dict[str, Any]:
    """Start something and return the answer, which must not be a refusal."""
    answer = page.post(f"/app/measurements/{path}", json=values)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def compare(page: TestClient, tokens: int = 60, **more: Any) -> str:
    return str(asked(page, "compare", model="", runs=RUNS, tokens=tokens, **more)["name"])


def until(page: TestClient, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return what is measured once it `holds`, or the overview for an empty name."""
    give_up_at_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at_s:
        seen: dict[str, Any] = page.get(f"/app/measurements/{name}".rstrip("/")).json()
        if holds(seen):
            return seen
        time.sleep(0.05)
    raise AssertionError(f"it never came: {seen}")


def ended(seen: dict[str, Any]) -> bool:
    return bool(seen["status"] != "running")


def test_a_comparison_is_measured_shown_kept_downloaded_and_deleted(echo_service: EchoService) -> None:
    with client(echo_service(rate="max")) as page:
        name = compare(page)
        seen = until(page, name, ended)
        assert seen["status"] == "finished"
        assert [figure["title"] for figure in seen["figures"]][:2] == ["Memory of the process", "Keys and values held"]
        assert [len(figure["data"]) for figure in seen["figures"]] == [2, 2, 2, 2]
        again = page.get(f"/app/measurements/{name}?version={seen['version']}").json()
        assert "figures" not in again  # what the page has is not sent again
        overview = page.get("/app/measurements").json()
        assert (overview["running"], [kept["name"] for kept in overview["kept"]]) == (None, [name])
        results = page.get(f"/app/measurements/{name}/results.json").json()
        assert [len(run["token_ids"]) for run in results["runs"]] == [60, 60]
        assert "<h2>Side by side</h2>" in page.get(f"/app/measurements/{name}/report.html").text
        page.delete(f"/app/measurements/{name}")
        assert page.get("/app/measurements").json()["kept"] == []
        assert page.get("/app/measurements").json()["engine"] == "empty"


def test_stopping_keeps_what_was_measured(echo_service: EchoService) -> None:
    with client(echo_service(rate="200")) as page:
        name = compare(page, tokens=100_000)
        until(page, name, lambda seen: any(figure["data"][0]["x"] for figure in seen.get("figures", [])))
        page.post("/app/measurements/stop")
        seen = until(page, name, ended)
        assert seen["status"] == "stopped"
        assert seen["sentences"][0].startswith("Stopped early")
        assert page.get(f"/app/measurements/{name}/results.json").json()["runs"][0]["token_ids"]


def test_a_loaded_model_is_unloaded_only_where_that_was_chosen(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="5")
    with client(service) as page:
        chat = page.post("/app/chats").json()["id"]
        page.post(f"/app/chats/{chat}/send", json={"text": "Hello"})
        until(page, "", lambda seen: bool(seen["engine"] == "ready"))
        refused = page.post("/app/measurements/compare", json={"model": "", "runs": RUNS})
        assert refused.status_code == 400
        assert "A chat model is in memory" in refused.json()["message"]
        name = compare(page, unload=True)
        assert service.status().model is None
        assert until(page, name, ended)["status"] == "finished"


def test_while_the_chat_writes_nothing_is_measured(echo_service: EchoService) -> None:
    with client(echo_service(rate="50", end_after="5000")) as page:
        chat = page.post("/app/chats").json()["id"]
        page.post(f"/app/chats/{chat}/send", json={"text": "Hello"})
        refused = page.post("/app/measurements/compare", json={"model": "", "runs": RUNS, "unload": True})
        assert "The chat is writing" in refused.json()["message"]
        page.post(f"/app/chats/{chat}/stop")


def test_a_message_sent_meanwhile_waits_says_why_and_is_answered_afterwards(echo_service: EchoService) -> None:
    service = echo_service(rate="100", end_after="10")
    with client(service) as page:
        name = compare(page, tokens=100_000)
        started = service.send(service.create_chat().id, "Hello")
        assert service.status().held_for == HELD_FOR
        assert started.view().notice == HELD_FOR
        assert started.view().queue_position == 1
        refused = page.post("/app/measurements/experiment", json={})
        assert "running already" in refused.json()["message"]
        page.post("/app/measurements/stop")
        until(page, name, ended)
        assert started.wait_until_finished(PATIENCE_S)
        assert started.view().num_tokens == 10
        assert not started.view().notice


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (RUNS[:1], "1 configurations cannot be compared"),
        ([{**RUNS[0], "backend": "ring"}, RUNS[1]], "No model is chosen"),
        ([], "No model is chosen"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(echo_service: EchoService, runs: list[Any], words: str) -> None:
    with client(echo_service()) as page:
        refused = page.post("/app/measurements/compare", json={"model": "", "runs": runs})
        assert words in refused.json()["message"]


def test_a_measurement_cut_by_the_end_of_the_application_counts_as_stopped(
    echo_service: EchoService, tmp_path: Path
) -> None:
    service = echo_service()
    seen = Seen("20260101-120000-compare", "compare", "Echo", 0.0)
    folder = tmp_path / "measurements"
    folder.mkdir(exist_ok=True)
    (folder / f"{seen.name}.json").write_text(json.dumps(asdict(seen)))
    (folder / "20260101-120001-doctor.json").write_text("{")
    assert service.measurements.kept() == [replace(seen, status="stopped", stage=replace(seen.stage, text=""))]
    for name in ("../chats", "20260101-120001-doctor", "20250101-120000-doctor"):
        with pytest.raises(BadRequestError):
            service.measurements.seen(name)


def test_closing_stops_and_keeps_a_measurement(echo_service: EchoService, tmp_path: Path) -> None:
    service = echo_service(rate="200")
    with client(service) as page:
        name = compare(page, tokens=100_000)
        service.close()
    kept = json.loads((tmp_path / "measurements" / f"{name}.json").read_text())
    assert kept["status"] == "stopped"


def test_the_doctor_looks_at_the_backend_that_was_chosen(echo_service: EchoService, tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_window=32, sliding_pattern=2)
    with client(echo_service()) as page:
        run = {"backend": "ring", "policy": "as trained", "window": 40, "sinks": 3}
        seen = asked(page, "doctor", model=str(model), run=run, tokens=0, reference_tokens=0)
        assert seen["title"] == "tiny.gguf: ring, as trained, W = 40"
        page.post("/app/measurements/stop")
        assert until(page, seen["name"], ended)["status"] == "stopped"
        refused = page.post("/app/measurements/doctor", json={"model": "", "run": {"backend": "echo"}})
        assert "no model to look into" in refused.json()["message"]


def test_the_pages_are_documents_of_their_own(echo_service: EchoService) -> None:
    with client(echo_service()) as page:
        for name in ("compare", "doctor"):
            answer = page.get(f"/app/{name}")
            assert answer.status_code == 200
            assert f"/app/assets/proof_{name}.js" in answer.text
            assert page.get(f"/app/assets/proof_{name}.js").status_code == 200


def test_measurements_of_an_empty_folder_are_none(echo_service: EchoService, tmp_path: Path) -> None:
    measurements: Measurements = echo_service().measurements
    assert measurements.kept() == []
    assert measurements.running() is None
