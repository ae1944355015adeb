"""What the page gets, as plain values ready for JSON. One function a thing; no HTTP, no Gradio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.chat_settings import ChatSettings
from app.engine_status import EngineStatus
from app.metrics import TRACES, MetricsRecord, Sample, Summary
from app.outlook import Outlook
from app.run_views import RunView
from app.runs import Run
from app.store import Chat, StoredMessage
from app.without_effect import without_effect
from backends.contract import LoadedModel
from backends.events import LoadProgress

Json = dict[str, Any]


def chat_data(chat: Chat, *, writing: bool = False) -> Json:
    """Return a row of the chat list; `writing` marks the ones with a reply under way."""
    return {
        "id": chat.id,
        "title": chat.title,
        "pinned": chat.pinned,
        "folder": chat.folder,
        "updated_at_s": chat.updated_at_s,
        "writing": writing,
        "kind": chat.kind,
    }


def started_data(run: Run) -> Json:
    """Return what was begun: the run, and where it writes."""
    return {"run": run.id, "chat": run.chat_id, "message": run.message_id}


def message_data(message: StoredMessage) -> Json:
    """Return a message without its text; a user's text comes along, a reply's comes as blocks."""
    data: Json = {
        "id": message.id,
        "role": message.role,
        "status": message.status,
        "num_chars": len(message.text),
        "num_tokens": len(message.token_ids),
        "finish_reason": message.finish_reason,
        "error": message.error,
        "model": message.model_name,
        "backend": message.backend,
        "seed": message.seed,
        "parent": message.parent_id,
        "version": message.version,
        "notes": message.content.notes(),
    }
    if message.role == "user":
        data["text"] = message.text
    return data


def model_data(model: LoadedModel | None) -> Json | None:
    """Return the facts of a loaded model."""
    if model is None:
        return None
    return {**asdict(model), "policy": model.policy.value, "notices": list(model.notices)}


def progress_data(progress: LoadProgress | None) -> Json | None:
    """Return one step of loading."""
    return None if progress is None else asdict(progress)


def status_data(status: EngineStatus) -> Json:
    """Return what the engine is doing, for the bar at the top."""
    return {
        "state": status.state,
        "model": model_data(status.model),
        "progress": progress_data(status.progress),
        "process_bytes": status.process_bytes,
        "memory": None if status.memory is None else asdict(status.memory),
        "num_waiting": status.num_waiting,
        "error": status.error,
        "hint": status.hint,
        "held_for": status.held_for,
    }


def summary_data(summary: Summary) -> Json:
    """Return the big numbers of the panel."""
    return asdict(summary)


def run_data(view: RunView) -> Json:
    """Return the state of a run; its text travels as blocks."""
    return {
        "status": view.status,
        "num_chars": view.num_chars,
        "num_tokens": view.num_tokens,
        "summary": summary_data(view.summary),
        "queue_position": view.queue_position,
        "progress": progress_data(view.load_progress),
        "prefill": None if view.prefill is None else asdict(view.prefill),
        "reason": view.reason,
        "error": view.error,
        "hint": view.hint,
        "cancelling": view.cancelling,
        "notice": view.notice,
        "model": None if view.model is None else view.model.name,
    }


def outlook_data(seen: Outlook, settings: ChatSettings) -> Json:
    """Return what the page says before loading, with the settings it is about."""
    estimate = seen.estimate
    weighed = None
    if estimate is not None:
        weighed = {
            "weights_bytes": estimate.weights_bytes,
            "kv_bytes": estimate.kv_bytes,
            "kv_full_bytes": [[tokens, size] for tokens, size in estimate.kv_full_bytes.items()],
            "kv_policy_bytes": [[tokens, size] for tokens, size in estimate.kv_policy_bytes.items()],
            "fits": estimate.fits,
            "full_cache_outgrows_at_tokens": estimate.full_cache_outgrows_at_tokens,
        }
    return {
        "name": seen.name,
        "backend": settings.load.backend,
        "policy": settings.load.policy.value,
        "window": settings.load.window,
        "continues_text": seen.continues_text,
        "openings": [asdict(opening) for opening in seen.openings],
        "notes": list(seen.notes),
        "templates": list(seen.templates),
        "without_effect": without_effect(settings),
        "problem": seen.problem,
        "hint": seen.hint,
        "estimate": weighed,
    }


def metrics_data(record: MetricsRecord) -> Json:
    """Return a whole series: per trace the columns tokens, time_s and value."""
    return {
        "summary": summary_data(record.summary),
        "traces": {name: _columns(record.traces.get(name, [])) for name in TRACES},
        "prefills": [asdict(span) for span in record.prefills],
        "sequence": record.sequence,
    }


def sample_data(sample: Sample) -> list[float | None]:
    """Return one sample as [tokens, time_s, *values in the order of `TRACES`]."""
    return [sample.tokens, round(sample.time_s, 3), *sample.values]


def _columns(points: Sequence[tuple[int, float, float]]) -> list[list[float]]:
    return [[point[0] for point in points], [round(point[1], 3) for point in points], [point[2] for point in points]]
