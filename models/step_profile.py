"""Where the time of one token goes, by the operators that PyTorch runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.autograd.profiler_util import FunctionEventAvg
from torch.profiler import ProfilerActivity, profile

from models.detokenizer import StreamDecoder
from models.model_files import ModelFiles
from models.tokenizer import load_tokenizer

_REST = "norms and other arithmetic"
PARTS = ("weights", "attention", "copies", "sampling", _REST, "outside PyTorch")

_DETOKENISED = 100  # times each token: one takes microseconds

_WORDS = {
    "attention": ("attention", "bmm", "softmax", "aten::baddbmm"),
    "weights": ("linear", "addmm", "aten::mm", "matmul", "embedding", "gemm", "int8pack"),
    "copies": ("copy", "cat", "clone", "index_put", "aten::index", "fill", "zero", "roll"),
    "sampling": (
        "topk",
        "sort",
        "cumsum",
        "multinomial",
        "argmax",
        "aten::max",
        "gather",
        "scatter",
        "amax",
        "aten::exp",
    ),
}


def part_of(operator: str) -> str:
    """Return which of `PARTS` an operator belongs to, from its name ("aten::index_copy_" is a copy)."""
    return next((part for part, words in _WORDS.items() if any(word in operator for word in words)), _REST)


def seconds_by_part(step: Callable[[], object], num_steps: int) -> dict[str, float]:
    """Return the seconds that one call of `step` spends in each part; their sum is the time of a step.

    The calls are timed once plainly and then once more under the profiler, whose own cost is thereby left out: what
    operators do not account for is time outside PyTorch, such as Python's and the detokeniser's.
    """
    step()
    started_s = time.perf_counter()
    for _ in range(num_steps):
        step()
    plain_s = (time.perf_counter() - started_s) / num_steps
    on_gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    with profile(activities=[ProfilerActivity.CPU, *on_gpu], acc_events=True) as recorded:
        for _ in range(num_steps):
            step()
    found = dict.fromkeys(PARTS, 0.0)
    for event in recorded.key_averages():
        found[part_of(event.key)] += _self_us(event) / 1e6 / num_steps
    inside_s = sum(found.values())
    if inside_s > plain_s:  # the profiler slows the operators themselves: keep their proportions
        return {part: seconds * plain_s / inside_s for part, seconds in found.items()}
    return found | {"outside PyTorch": plain_s - inside_s}


def detokenising_s(model: Path, token_ids: Sequence[int]) -> float:
    """Return the seconds that turning one token into text takes, as a reply is streamed."""
    decoder = StreamDecoder(load_tokenizer(ModelFiles.open(model)), ())
    started_s = time.perf_counter()
    for _ in range(_DETOKENISED):
        for token in token_ids:
            decoder.push(token)
    return (time.perf_counter() - started_s) / (_DETOKENISED * len(token_ids))


def _self_us(event: FunctionEventAvg) -> float:
    return float(event.self_device_time_total or event.self_cpu_time_total)
