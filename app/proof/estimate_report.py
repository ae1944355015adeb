"""An outlook as tables and sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from app.proof.estimate import Outlook, figure
from app.proof.quantities import bytes_text
from app.proof.report import Report, Table
from models.config import ModelConfig


def report(outlook: Outlook, config: ModelConfig, on_gpu: bool = False, encodings: Collection[str] = ()) -> Report:
    """Turn an outlook into a report."""
    return Report(
        title=f"Before loading {outlook.model}",
        sentences=[*_ends(outlook), *outlook.sentences],
        figures=[figure(config, outlook.request, on_gpu=on_gpu, encodings=encodings)],
        tables=[_parts(outlook), _kinds(outlook), _windows(outlook)],
        results=results(outlook),
    )


def results(outlook: Outlook) -> dict[str, Any]:
    """Return the outlook as JSON-ready values, the total among them."""
    return dataclasses.asdict(outlook) | {"total_bytes": outlook.total_bytes}


def _ends(outlook: Outlook) -> list[str]:
    if outlook.full_ends_at_tokens is None or outlook.free_bytes is None:
        return []
    return [
        f"A cache that keeps everything would exceed the {bytes_text(outlook.free_bytes)} that are free at "
        f"{outlook.full_ends_at_tokens:,} tokens."
    ]


def _parts(outlook: Outlook) -> Table:
    request = outlook.request
    rows = [
        ("Weights as held", bytes_text(outlook.weights_bytes)),
        (f"Keys and values, {request.policy.value}, W = {request.window:,}", bytes_text(outlook.kv_bytes)),
        ("Tokenizer, scratch space, saved turn", bytes_text(outlook.buffers_bytes)),
        ("Libraries", "not measured" if outlook.runtime_bytes is None else bytes_text(outlook.runtime_bytes)),
        ("Process in all", bytes_text(outlook.total_bytes)),
        ("Free now", "unknown" if outlook.free_bytes is None else bytes_text(outlook.free_bytes)),
    ]
    return Table(f"Memory, {request.backend} backend", ("", "Bytes"), rows)


def _kinds(outlook: Outlook) -> Table:
    rows = [(kind.name, str(kind.num_layers), bytes_text(kind.bytes_per_token)) for kind in outlook.kinds]
    kv_type, size = outlook.request.kv_type, outlook.element_bytes
    element = f"{size} byte{'s' if size > 1 else ''} a number" if kv_type == "auto" else kv_type
    return Table(f"Keys and values of one token, {element}", ("Layers", "Number", "A token"), rows)


def _windows(outlook: Outlook) -> Table:
    rows = [
        (
            f"{row.window:,}{' *' if row.window == outlook.request.window else ''}",
            bytes_text(row.kv_bytes),
            bytes_text(row.total_bytes),
            {True: "yes", False: "no", None: "?"}[row.fits],
            f"{row.even_at_tokens:,}",
        )
        for row in outlook.rows
    ]
    columns = ("Window", "Keys and values", "Process", "Fits", "Full is even at")
    return Table("The ring by window", columns, rows)
