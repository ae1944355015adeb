"""A real service on the echo backend, and the real server around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.chat_settings import ChatSettings
from app.service import Service
from app.settings import Settings
from backends.requests import LoadRequest

EchoService = Callable[..., Service]


@pytest.fixture
def echo_service(tmp_path: Path) -> Iterator[EchoService]:
    """Return a function that opens a service whose chats use the echo backend with the options given."""
    opened: list[Service] = []

    def open_service(
        max_new_tokens: int | None = None, overrides: dict[str, Any] | None = None, **options: str
    ) -> Service:
        settings = ChatSettings(LoadRequest("echo", "", window=64, options=options), max_new_tokens=max_new_tokens)
        opened.append(Service.open(Settings(defaults=settings, data_folder=tmp_path), overrides))
        return opened[-1]

    yield open_service
    for service in opened:
        service.close()
