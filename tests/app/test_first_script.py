"""The script that runs before Gradio's."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.ui.first_script import FirstScript

PAGE = "<html><head><script src=later.js></script></head><body><pre>&lt;head> <head></pre></body></html>"


def text_of(path: str) -> str:
    routes = [Route("/", lambda request: HTMLResponse(PAGE)), Route("/other", lambda request: HTMLResponse(PAGE))]
    page = Starlette(routes=routes)
    page.add_middleware(FirstScript, source="/first.js")
    return TestClient(page).get(path).text


def test_it_stands_before_every_other_script_and_changes_nothing_else() -> None:
    text = text_of("/")
    assert text.startswith('<html><head><script src="/first.js"></script><script src=later.js>')
    assert text.replace('<script src="/first.js"></script>', "") == PAGE


def test_other_pages_are_left_alone() -> None:
    assert text_of("/other") == PAGE
