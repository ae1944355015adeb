"""Decode steps as CUDA graphs: recorded once for each phase of a cache, then replayed without Python in between."""

from __future__ import annotations

from collections.abc import Callable

import torch

from models.ring_cache import KVCache


class GraphedStep:
    """Runs a step against a cache, by replay where it can.

    A recording is valid for one phase: rings still filling, or all full (no mask is needed then), and one address of
    every storage (growing layers move). The first step of a phase runs as it is, which is also the warm-up that
    recording asks for; the second is recorded; all later ones are replayed.

    Args:
        step: feeds one token a row with `decode_step(..., static=True)`. It reads and writes tensors that stay, and
            never waits for the device.
        cache: the one it feeds. Only the device counts tokens in the step; this class counts them on the host.
    """

    def __init__(self, step: Callable[[], None], cache: KVCache) -> None:
        self._step = step
        self._cache = cache
        self._stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._warm_phase: tuple[bool, int] | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    @torch.inference_mode()
    def run(self) -> None:
        """Feed one token a row."""
        self._cache.reserve(max(self._cache.lengths) + 1)  # growing layers move now, never inside a recording
        phase = (self._cache.is_saturated, self._cache.generation)
        if phase != self._warm_phase:
            self._graph = None  # before the next is recorded: its private memory is free again
            self._run_once()
            self._warm_phase = phase
        else:
            if self._graph is None:
                self._graph = self._record()
            self._graph.replay()
        self._cache.count_replayed(1)

    def _run_once(self) -> None:
        """Run on the stream that recording will use, so that libraries set up their workspaces there."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._step()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            self._step()
        return graph
