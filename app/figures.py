"""Figures of a run in words: one line for the terminal, and bytes and times as people write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line imports this module, and must not wait for numpy
    from app.metrics import Summary
    from app.run_views import RunView


def progress_line(view: RunView) -> str:
    """Return what a run waits for before its first token; empty once text comes."""
    if view.status == "queued":
        return f"Waiting, number {view.queue_position} in the queue" if view.queue_position else ""
    if view.status == "loading":
        progress = view.load_progress
        if progress is None:
            return "Loading"
        return f"{progress.stage} {progress.done / progress.total:.0%}" if progress.total else progress.stage
    if view.status == "prefill" and view.prefill is not None:
        return f"Reading the prompt, {view.prefill.done_tokens:,} of {view.prefill.total_tokens:,} tokens"
    return "Reading the prompt" if view.status == "prefill" else ""


def figures_line(summary: Summary) -> str:
    """Return the big numbers on one line."""
    parts = [f"{summary.num_tokens:,} tokens"]
    if summary.tokens_per_s is not None:
        parts.append(f"{summary.tokens_per_s:.1f} tokens/s")
    if summary.tokens_per_s_average is not None:
        unit = " tokens/s" if summary.tokens_per_s is None else ""
        parts.append(f"average {summary.tokens_per_s_average:.1f}{unit}")
    if summary.time_to_first_token_s is not None:
        parts.append(f"first after {duration(summary.time_to_first_token_s)}")
    if summary.window_tokens:
        window = summary.window or summary.window_tokens  # 0 in figures kept by earlier versions
        parts.append(f"window {min(summary.window_filled_tokens, window):,}/{window:,}")
    parts.append(f"KV {byte_count(summary.kv_held_bytes)} (full {byte_count(summary.kv_full_bytes)})")
    if summary.device_process_bytes is not None:
        parts.append(f"VRAM {byte_count(summary.device_process_bytes)}")
    parts += [f"memory {byte_count(summary.process_bytes)}", duration(summary.elapsed_s)]
    return " · ".join(parts)


def byte_count(num_bytes: float) -> str:
    """Return bytes with a binary unit: "512 B", "1.5 KiB", "1,008 MiB"."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while num_bytes >= 1024 and len(units) > 1:
        num_bytes /= 1024
        del units[0]
    return f"{num_bytes:,.0f} {units[0]}" if units[0] == "B" or num_bytes >= 100 else f"{num_bytes:.1f} {units[0]}"


def duration(seconds: float) -> str:
    """Return a time: "0.42 s", "12 s", "3 min 05 s", "10 h 02 min"."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:02.0f} min"
