"""The devices that the settings offer on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from app.proof.machine import has_cuda


def devices(chosen: str = "auto") -> list[str]:
    """Return the devices there are to choose from; one that was chosen on another machine stays to be seen."""
    return ["auto", "cpu", "cuda"] if chosen == "cuda" or has_cuda() else ["auto", "cpu"]


def device_words(offered: Sequence[str]) -> str:
    """Return what is said beside them."""
    if "cuda" in offered:
        return "Auto takes the GPU where there is one."
    return "cuda is not offered: no GPU that PyTorch could use was found on this machine."
