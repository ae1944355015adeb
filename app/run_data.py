"""A run's view as JSON and back: what `ringside generate` and the running instance say to each other."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from app.metrics import Summary
from app.run_views import RunView
from backends.contract import LoadedModel
from backends.events import LoadProgress, PrefillProgress
from backends.requests import CachePolicy

Json = dict[str, Any]


def view_data(view: RunView) -> Json:
    """Return a view as JSON."""
    return asdict(view)


def view_from(data: Json) -> RunView:
    """Read what `view_data` wrote, perhaps in another version: what is not known here is left out."""
    data = dict(data)
    data["summary"] = _known(Summary, data["summary"])
    data["load_progress"] = _known(LoadProgress, data["load_progress"])
    data["prefill"] = _known(PrefillProgress, data["prefill"])
    if (model := data["model"]) is not None:
        policy, notices = CachePolicy(model["policy"]), tuple(model["notices"])
        data["model"] = _known(LoadedModel, {**model, "policy": policy, "notices": notices})
    view: RunView = _known(RunView, data)
    return view


def _known(kind: Any, data: Json | None) -> Any:
    if data is None:
        return None
    names = {each.name for each in fields(kind)}
    return kind(**{name: value for name, value in data.items() if name in names})
