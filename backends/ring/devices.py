"""Where a model runs."""

from __future__ import annotations

import torch

from backends.requests import LoadRequest


def choose_device(request: LoadRequest) -> tuple[torch.device, tuple[str, ...]]:
    """Return the device, and what the person should know about the choice."""
    if request.device != "cpu" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device()), ()
    if request.device == "cuda":
        return torch.device("cpu"), ("PyTorch finds no GPU here: the model runs on the CPU.",)
    return torch.device("cpu"), ()


def device_name(device: torch.device) -> str:
    """Return "cpu", or the GPU's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
