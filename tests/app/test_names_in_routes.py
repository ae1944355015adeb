"""No name given to a route leads out of the data folder: not read, not written, not deleted there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.chat_settings import ChatSettings
from app.server import build_routes
from app.service import Service
from app.settings import Settings
from backends.requests import LoadRequest

SECRET = "nobody may read this"
HOSTILE = (
    "../secret",
    "..\\secret",
    "../../secret.toml",
    "presets/../../secret",
    "....//secret",
    "~/secret",
    "C:\\secret",
    "\\\\host\\secret",
    "secret\0",
    "CON",
    "nul.toml",
    "com1.",
    ".hidden",
    "..",
    ".",
    "",
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FastAPI]:
    """The application with its data in a folder beside which secrets lie."""
    for name in ("secret", "secret.toml", "secret.json", "results.json", "report.html"):
        (tmp_path / name).write_text(SECRET)
    settings = ChatSettings(LoadRequest("echo", "", window=64))
    service = Service.open(Settings(defaults=settings, data_folder=tmp_path / "data"))
    yield build_routes(service)
    service.close()


def outside(folder: Path) -> dict[str, str]:
    """Return every file beside the data folder with its text."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(folder / "data")]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def named_routes(app: FastAPI) -> list[tuple[str, str]]:
    """Return (method, path) of every route with a name in its path."""
    return [
        (method.upper(), path)
        for path, methods in app.openapi()["paths"].items()
        for method, route in methods.items()
        if any(each["in"] == "path" and each["schema"].get("type") == "string" for each in route.get("parameters", []))
    ]


@pytest.mark.parametrize("kind", ["as it is", "absolute", "quoted twice"])
def test_a_name_in_the_address_leads_nowhere(served: FastAPI, tmp_path: Path, kind: str) -> None:
    before = outside(tmp_path)
    names = [str(tmp_path / "secret")] if kind == "absolute" else list(HOSTILE)
    routes = named_routes(served)
    assert {"/app/presets/{name}", "/app/assets/{name}"} <= {path for _, path in routes}
    with TestClient(served, base_url="http://127.0.0.1:7878") as page:
        for method, path in routes:
            start, _, rest = path.partition("{")
            end = rest.partition("}")[2]
            for name in names:
                given = quote(quote(name, safe=""), safe="") if kind == "quoted twice" else quote(name, safe="")
                answer = page.request(method, f"{start}{given}{end}")
                assert answer.status_code < 500, f"{method} {start}{name}{end}"
                assert SECRET not in answer.text, f"{method} {start}{name}{end}"
    assert outside(tmp_path) == before


@pytest.mark.parametrize("name", [*HOSTILE, "/etc/passwd"])
def test_a_name_in_a_body_is_refused_or_only_a_title(served: FastAPI, tmp_path: Path, name: str) -> None:
    before = outside(tmp_path)
    with TestClient(served, base_url="http://127.0.0.1:7878") as page:
        for path, body in (
            ("/app/presets", {"name": name}),
            ("/app/presets/import", {"name": name, "content": "window = 32"}),
        ):
            answer = page.post(path, json=body)
            assert answer.status_code == 400, path
            assert "A preset cannot be called" in answer.json()["message"]
        (chat,) = page.post("/app/import", json={"name": name, "content": "Once."}).json()["chats"]
        page.put(f"/app/chats/{chat['id']}/folder", json={"folder": name})
        page.patch(f"/app/chats/{chat['id']}", json={"title": name or "x"})
        for ending in ("md", "txt", "html", "json"):
            said = page.get(f"/app/chats/{chat['id']}/export.{ending}").headers["content-disposition"]
            saved_as = said.partition("''")[2]
            assert not any(part in saved_as for part in ("%2F", "%5C", ".."))
    assert outside(tmp_path) == before
    written = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert all(path.name.startswith("chats.sqlite") for path in written), written
