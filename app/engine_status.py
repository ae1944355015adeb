"""What the engine is doing, as everybody sees it. See `app.engine`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backends.contract import LoadedModel
from backends.events import LoadProgress, MemoryFigures
from backends.requests import LoadRequest

EngineState = Literal["empty", "loading", "ready", "generating"]


@dataclass(frozen=True)
class EngineStatus:
    """What the engine is doing.

    Attributes:
        state: "empty" with no model in memory, "loading", "ready", "generating".
        request: what is loaded or being loaded.
        model: facts of the loaded model; its `notices` belong on the page.
        progress: of loading.
        worker_pid, process_bytes: of the process that holds the model; resident bytes now.
        memory: the backend's figures as last reported.
        num_waiting: runs in the queue, the running one not counted.
        error, hint: of the last load that failed, or of a death while idle; empty once a load worked.
        held_for: why nothing is served now, see `Engine.hold`; empty if nothing holds it.
    """

    state: EngineState = "empty"
    request: LoadRequest | None = None
    model: LoadedModel | None = None
    progress: LoadProgress | None = None
    worker_pid: int | None = None
    process_bytes: int = 0
    memory: MemoryFigures | None = None
    num_waiting: int = 0
    error: str = ""
    hint: str = ""
    held_for: str = ""
