"""What the ring engine decides about a GPU, with torch's answers in its place: no GPU is needed."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest
import torch

from backends.requests import LoadRequest
from backends.ring import devices, memory
from models.precision import choose_precision

CUDA = torch.device("cuda", 0)
GB = 10**9


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A card of 24 GB: 3 GB free for the driver, of the others torch holds 20 and uses 12."""
    card = SimpleNamespace(is_integrated=False, has_bfloat16=True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * GB, 24 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 20 * GB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 12 * GB)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: card.has_bfloat16)
    return card


def test_what_torch_holds_back_unused_is_free_and_a_gigabyte_stays(gpu: SimpleNamespace) -> None:
    assert memory.free_bytes(CUDA) == (3 + 20 - 12 - 1) * GB


def test_a_gpu_that_shares_the_computers_memory_has_what_the_system_has(gpu: SimpleNamespace) -> None:
    gpu.is_integrated = True
    assert abs(memory.free_bytes(CUDA) - psutil.virtual_memory().available) < GB


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "The GPU's memory"),
        (RuntimeError("CUDA error: out of memory"), "The GPU's memory"),
        (RuntimeError("cuBLAS error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), "The GPU's memory"),
        (MemoryError(), "The computer's memory"),
    ],
)
def test_memory_that_ran_out_is_told_also_from_behind_another_error(error: Exception, where: str) -> None:
    found = memory.as_out_of_memory(error)
    assert found is not None
    assert found.message.startswith(where)
    outer = RuntimeError("operation failed due to a previous error during capture")
    outer.__context__ = error
    assert str(memory.as_out_of_memory(outer)) == str(found)


def test_another_error_is_no_lack_of_memory() -> None:
    assert memory.as_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered")) is None


@pytest.mark.parametrize(
    ("requested", "has_bfloat16", "architecture", "dtype", "said"),
    [
        ("auto", False, "Gemma3ForCausalLM", torch.float32, "beyond float16: float32 is used"),
        ("auto", False, "llama", torch.float16, "This GPU has no bfloat16: float16 is used"),
        ("auto", True, "gemma3", torch.bfloat16, ""),
        ("float16", True, "gemma3", torch.float16, "beyond float16's range"),
        ("float16", True, "llama", torch.float16, ""),
    ],
)
def test_gemma_is_not_held_in_float16_unless_asked_for(
    gpu: SimpleNamespace, requested: str, has_bfloat16: bool, architecture: str, dtype: torch.dtype, said: str
) -> None:
    gpu.has_bfloat16 = has_bfloat16
    held = choose_precision(requested, {"BF16"}, CUDA, architecture)  # type: ignore[arg-type]
    assert held.dtype == dtype
    assert said in " ".join(held.notices)
    assert bool(said) == bool(held.notices)


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: False)
    monkeypatch.setattr(devices, "nvidia_driver_answers", lambda: False)


def notices(device: str) -> str:
    chosen, sentences = devices.choose_device(LoadRequest("ring", "m", device=device))  # type: ignore[arg-type]
    assert chosen.type == "cpu"
    return " ".join(sentences)


@pytest.mark.usefixtures("no_cuda")
def test_a_machine_without_a_gpu_is_no_news_unless_one_was_asked_for() -> None:
    assert notices("auto") == notices("cpu") == ""
    assert notices("cuda") == "The model runs on the CPU: PyTorch finds no GPU here."


@pytest.mark.usefixtures("no_cuda")
@pytest.mark.parametrize(
    ("built_for", "said"),
    [(None, "this PyTorch is a build for CPUs"), ("13.0", "the NVIDIA driver is too old for this PyTorch")],
)
def test_an_nvidia_card_that_goes_unused_is_told_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, built_for: str | None, said: str
) -> None:
    monkeypatch.setattr(devices, "nvidia_driver_answers", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    assert said in notices("auto")
    assert said in notices("cuda")
    assert notices("cpu") == ""


@pytest.mark.usefixtures("no_cuda")
@pytest.mark.parametrize(("module", "said"), [(torch.backends.mps, "Apple GPUs"), (torch.xpu, "Intel GPUs")])
def test_another_makers_gpu_is_told_of(monkeypatch: pytest.MonkeyPatch, module: object, said: str) -> None:
    monkeypatch.setattr(module, "is_available", lambda: True)
    assert said in notices("auto")
