"""Decode steps as CUDA graphs: recorded once for each phase of a cache, then replayed without Python in between.

What a recording needs of the device is behind `Recorder`, so that its rules can be tried without one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import torch

from models.ring_cache import KVCache

logger = logging.getLogger(__name__)

Step = Callable[[], None]


class Recording(Protocol):
    """A step whose decisions on the host are fixed."""

    def replay(self) -> None:
        """Run it again on what its tensors hold now."""


class Recorder(Protocol):
    """Warms steps up and records them."""

    def warm_up(self, step: Step) -> None:
        """Run the step where recording will happen."""

    def record(self, step: Step) -> Recording:
        """Record the step, which runs nothing on the device; RuntimeError where the device refuses."""


class CudaRecorder:
    """Records on one side stream of the current CUDA device."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def warm_up(self, step: Step) -> None:
        """Run the step on the stream that recording will use, so that libraries set up their workspaces there."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            step()
        torch.cuda.current_stream().wait_stream(self._stream)

    def record(self, step: Step) -> torch.cuda.CUDAGraph:
        """Record the step; other threads may use the device meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            step()
        return graph


class GraphedStep:
    """Runs a step against a cache, by replay where it can.

    A recording is valid for one phase: which rings are full (those need no mask), and one address of every storage
    (growing layers move). The first step of a phase runs as it is, which is also the warm-up that recording asks for;
    the second is recorded; all later ones are replayed. Where the device refuses a recording, steps go on running as
    they are.

    Args:
        cache: the one that steps feed. Only the device counts tokens in a step; this class counts them on the host.
        recorder: of the device.

    Attributes:
        refused: why the device would not record a step; empty where it did, or was not asked yet.
    """

    def __init__(self, cache: KVCache, recorder: Recorder) -> None:
        self.refused = ""
        self._cache = cache
        self._recorder = recorder
        self._warm_phase: tuple[tuple[bool, ...], int] | None = None
        self._recording: Recording | None = None

    @torch.inference_mode()
    def run(self, step: Step) -> None:
        """Feed one token a row.

        Args:
            step: feeds it with `decode_step(..., static=True)`; the same at every call. It reads and writes tensors
                that stay, and never waits for the device. It is not kept: its owner owns this, and a circle of the two
                would keep a dropped cache until Python's next full collection.
        """
        self._cache.reserve(max(self._cache.lengths) + 1)  # growing layers move now, never inside a recording
        phase = (self._cache.full_kinds, self._cache.generation)
        if phase != self._warm_phase:
            self._recording = None  # before the next is recorded: its private memory is free again
            self._recorder.warm_up(step)
            self._warm_phase = phase
        elif self._recording is None and not self._record(step):
            self._recorder.warm_up(step)
        else:
            assert self._recording is not None
            self._recording.replay()
        self._cache.count_replayed(1)

    def _record(self, step: Step) -> bool:
        """Record the step; False where the device refuses, now or before."""
        if self.refused:
            return False
        try:
            self._recording = self._recorder.record(step)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # nothing ran on the device, so the cache is as it was
            logger.exception("the step could not be recorded as a CUDA graph")
            self.refused = " ".join(str(error).split())[:200] or type(error).__name__
            return False
        return True
