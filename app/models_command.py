"""`ringside models`: what is found on this machine, and which backends can run it."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from app.figures import byte_count
from app.local_models import local_models, why_not
from app.settings import Settings
from models.catalog import ModelEntry
from models.demo import DEMOS

_BACKENDS = ("ring", "llamacpp")


def list_models(settings: Settings, as_json: bool) -> int:
    """Print the models found, and the demo models that could be fetched; return the exit code."""
    entries = local_models(settings.data_folder, settings.model_folders)
    if as_json:
        for entry in entries:
            print(json.dumps(_facts(entry), ensure_ascii=False))
        return 0
    console = Console() if sys.stdout.isatty() else Console(width=160)
    if entries:
        console.print(_table(entries))
        for entry in entries:
            for backend in _BACKENDS:
                if reason := why_not(entry, backend):
                    console.print(f"{entry.name}, {backend}: {reason}", highlight=False, markup=False)
    for demo in DEMOS.values():
        if not demo.is_here(settings.data_folder):
            console.print(
                f"{demo.name} can be fetched with --model {demo.name}: {demo.about} {demo.license}, "
                f"{demo.download_bytes / 1e6:.0f} MB.",
                highlight=False,
                markup=False,
            )
    return 0


def _facts(entry: ModelEntry) -> dict[str, Any]:
    config = entry.config
    return {
        "name": entry.name,
        "path": str(entry.path),
        "kind": entry.kind,
        "architecture": entry.architecture,
        "stored_as": entry.stored_as,
        "size_bytes": entry.size_bytes,
        "num_sliding_layers": config.num_sliding_layers if config else None,
        "num_full_layers": config.num_full_layers if config else None,
        "trained_window": config.trained_window if config else None,
        "context_tokens": config.context_tokens if config else None,
        "license": entry.license,
        "backends": {
            backend: {"runs": not why_not(entry, backend), "why_not": why_not(entry, backend)} for backend in _BACKENDS
        },
    }


def _table(entries: list[ModelEntry]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("Model", "Architecture", "Layers", "Window", "Context", "Size", *_BACKENDS):
        table.add_column(title, justify="right" if title in ("Window", "Context", "Size") else "left")
    for entry in entries:
        config = entry.config
        layers = f"{config.num_sliding_layers} sliding, {config.num_full_layers} full" if config else "?"
        table.add_row(
            entry.name,
            entry.architecture or "?",
            layers,
            f"{config.trained_window:,}" if config and config.trained_window else "none" if config else "?",
            f"{config.context_tokens:,}" if config and config.context_tokens else "?",
            byte_count(entry.size_bytes) if entry.size_bytes else "?",
            *(_verdict(entry, backend) for backend in _BACKENDS),
        )
    return table


def _verdict(entry: ModelEntry, backend: str) -> str:
    """Return whether a backend runs a model; the ring backend takes folders its decoder does not know elsewhere."""
    if why_not(entry, backend):
        return "no"
    return "yes, through transformers" if backend == "ring" and entry.config is None else "yes"
