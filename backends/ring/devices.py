"""Where a model runs, and why it does not run where the person may have expected."""

from __future__ import annotations

import torch

from backends.requests import LoadRequest


def choose_device(request: LoadRequest) -> tuple[torch.device, tuple[str, ...]]:
    """Return the device, ready for use, and what the person should know about the choice."""
    if request.device != "cpu" and torch.cuda.is_available():
        # torch would ask cuDNN first on H100 and later: it plans anew for every new shape (some 40 ms each, several a
        # prompt), and is reported to corrupt text in silence on B200 (pytorch#193893). vLLM switches it off as well.
        torch.backends.cuda.enable_cudnn_sdp(False)
        return torch.device("cuda", torch.cuda.current_device()), ()
    if request.device == "cpu":
        return torch.device("cpu"), ()
    reason = why_no_gpu()
    if request.device == "cuda":
        return torch.device("cpu"), (f"The model runs on the CPU: {reason or 'PyTorch finds no GPU here.'}",)
    return torch.device("cpu"), (f"The model runs on the CPU: {reason}",) if reason else ()


def why_no_gpu() -> str:
    """Return why PyTorch uses no GPU and what to do, as a sentence; empty where nothing hints at one."""
    if torch.backends.mps.is_available():
        return "this engine does not use Apple GPUs; the llama.cpp engine does."
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return "this engine does not use Intel GPUs; the llama.cpp engine can be built for them."
    if not nvidia_driver_answers():
        return ""
    if torch.version.cuda is None:
        return (
            "there is an NVIDIA GPU, but this PyTorch is a build for CPUs. Install one for CUDA, as "
            "pytorch.org/get-started tells for your system."
        )
    return (
        f"the NVIDIA driver is too old for this PyTorch, which needs one for CUDA {torch.version.cuda}. Update the "
        "driver, or install a PyTorch for an older CUDA."
    )


def nvidia_driver_answers() -> bool:
    """Say whether the NVIDIA driver's own library tells of a GPU here."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount()) > 0
    except Exception:  # no library, no driver, no permission: nothing hints at a GPU
        return False


def device_name(device: torch.device) -> str:
    """Return "cpu", or the GPU's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
