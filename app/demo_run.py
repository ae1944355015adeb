"""One click that shows what the app is about: the sliding-window demo, a small window, a reply that goes on."""

from __future__ import annotations

from dataclasses import replace

from app.openings import openings_for
from app.runs import Run
from app.service import Service
from backends.registry import BACKENDS
from backends.requests import CachePolicy
from models.demo import DEFAULT_DEMO

DEMO_WINDOW_TOKENS = 256
DEMO_REPLY_TOKENS = 20_000
DEMO_REPETITION_PENALTY = 1.15  # a model this small goes in circles without one


def start_demo(service: Service) -> Run:
    """Create a chat with the demo's settings and start its reply; the backend chosen is kept if it runs models.

    Raises:
        RingsideError: the reply cannot be started.
    """
    settings = service.settings()
    chosen = BACKENDS[settings.load.backend]
    runs_models = chosen.name != "echo" and not chosen.missing_libraries()
    backend = chosen.name if runs_models else _first_available()
    load = replace(
        settings.load,
        backend=backend,
        model=DEFAULT_DEMO,
        policy=CachePolicy.RING,
        window=DEMO_WINDOW_TOKENS,
        sinks=4,
        chat_template=None,
        options={},
    )
    demo = replace(
        settings,
        load=load,
        sampling=replace(settings.sampling, repetition_penalty=DEMO_REPETITION_PENALTY),
        system_prompt="",
        stop=(),
        keep_writing=True,
        max_new_tokens=DEMO_REPLY_TOKENS,
    )
    chat = service.create_chat("Demo: a small window", settings=demo)
    return service.send(chat.id, openings_for(continues_text=True)[0].text)


def _first_available() -> str:
    """Return the first backend whose libraries are here; echo needs none."""
    return next(name for name, entry in BACKENDS.items() if not entry.missing_libraries())
