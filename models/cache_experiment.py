"""Why a ring: one attention layer, random tokens, four ways to keep the same window of keys and values.

All four give the same attention output; they differ in the bytes they hold and in the work of adding one token. No
model and no weights are needed, so this runs in seconds on a CPU. Read the four caches first: each is storage plus
`append`. It knows nothing of decoders; the cache that Ringside really uses is in `models.ring_cache`.

Shape letters: H heads, T new tokens, N tokens kept, D head_dim, W window.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from models.step_cost import StepCost, Strategy

NUM_HEADS, HEAD_DIM = 4, 64
BYTES_PER_TOKEN = 2 * NUM_HEADS * HEAD_DIM * 4  # keys and values, float32
MAX_STEPS = 50


class Cache(Protocol):
    """Keys and values of one layer, and which of them the newest token may see.

    Made from (window, capacity); only the preallocated one reads the capacity.
    """

    def append(self, keys_HTD: Tensor, values_HTD: Tensor) -> None: ...

    def view(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return keys and values [H, N, D] and a mask [N], true where visible; None where all are."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of storage held between two steps."""
        ...


class ConcatenatingCache:
    """Appends for ever: every step copies everything kept so far into new storage, and nothing is ever given back."""

    def __init__(self, window: int, capacity: int) -> None:
        self.window = window
        self.keys_HND = torch.empty(NUM_HEADS, 0, HEAD_DIM)
        self.values_HND = torch.empty_like(self.keys_HND)

    def append(self, keys_HTD: Tensor, values_HTD: Tensor) -> None:
        self.keys_HND = torch.cat((self.keys_HND, keys_HTD), dim=1)
        self.values_HND = torch.cat((self.values_HND, values_HTD), dim=1)

    def view(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.keys_HND, self.values_HND, _visible(self.window, self.keys_HND.shape[1])

    @property
    def nbytes(self) -> int:
        return _storage_bytes(self.keys_HND, self.values_HND)


class ShiftingCache:
    """Keeps W tokens in time order: memory is flat, but every step moves the whole window by one place."""

    def __init__(self, window: int, capacity: int) -> None:
        self.window = window
        self.keys_HWD = torch.zeros(NUM_HEADS, window, HEAD_DIM)
        self.values_HWD = torch.zeros_like(self.keys_HWD)
        self.position = 0

    def append(self, keys_HTD: Tensor, values_HTD: Tensor) -> None:
        self.keys_HWD = torch.cat((self.keys_HWD, keys_HTD), dim=1)[:, -self.window :].contiguous()
        self.values_HWD = torch.cat((self.values_HWD, values_HTD), dim=1)[:, -self.window :].contiguous()
        self.position += keys_HTD.shape[1]

    def view(self) -> tuple[Tensor, Tensor, Tensor | None]:
        filled = min(self.position, self.window)
        return self.keys_HWD[:, -filled:], self.values_HWD[:, -filled:], None

    @property
    def nbytes(self) -> int:
        return _storage_bytes(self.keys_HWD, self.values_HWD)


class RingCache:
    """Overwrites the oldest token: position p lives in slot p mod W. One row is written; nothing moves or is allocated.

    Once full, the slots are out of time order. Attention does not mind: softmax sums over keys in any order, and a
    key's position is already in its rotation.
    """

    def __init__(self, window: int, capacity: int) -> None:
        self.window = window
        self.keys_HWD = torch.zeros(NUM_HEADS, window, HEAD_DIM)
        self.values_HWD = torch.zeros_like(self.keys_HWD)
        self.position = 0

    def append(self, keys_HTD: Tensor, values_HTD: Tensor) -> None:
        num_new = keys_HTD.shape[1]
        if num_new == 1:
            slot = self.position % self.window
            self.keys_HWD[:, slot] = keys_HTD[:, 0]
            self.values_HWD[:, slot] = values_HTD[:, 0]
        else:  # only the last W of a long chunk can still be seen afterwards
            kept = min(num_new, self.window)
            slots = torch.arange(self.position + num_new - kept, self.position + num_new) % self.window
            self.keys_HWD[:, slots] = keys_HTD[:, -kept:]
            self.values_HWD[:, slots] = values_HTD[:, -kept:]
        self.position += num_new

    def view(self) -> tuple[Tensor, Tensor, Tensor | None]:
        filled = min(self.position, self.window)
        return self.keys_HWD[:, :filled], self.values_HWD[:, :filled], None

    @property
    def nbytes(self) -> int:
        return _storage_bytes(self.keys_HWD, self.values_HWD)


class PreallocatedCache:
    """Reserves room for the longest text at the start: nothing moves, but it is all paid up front and ends there."""

    def __init__(self, window: int, capacity: int) -> None:
        self.window = window
        self.keys_HCD = torch.zeros(NUM_HEADS, capacity, HEAD_DIM)
        self.values_HCD = torch.zeros_like(self.keys_HCD)
        self.position = 0

    def append(self, keys_HTD: Tensor, values_HTD: Tensor) -> None:
        end = self.position + keys_HTD.shape[1]
        if end > self.keys_HCD.shape[1]:
            raise ValueError(f"position {end} is beyond the {self.keys_HCD.shape[1]} reserved places")
        self.keys_HCD[:, self.position : end] = keys_HTD
        self.values_HCD[:, self.position : end] = values_HTD
        self.position = end

    def view(self) -> tuple[Tensor, Tensor, Tensor | None]:
        n = self.position
        return self.keys_HCD[:, :n], self.values_HCD[:, :n], _visible(self.window, n)

    @property
    def nbytes(self) -> int:
        return _storage_bytes(self.keys_HCD, self.values_HCD)


CACHES: dict[Strategy, Callable[[int, int], Cache]] = {
    "concatenate": ConcatenatingCache,
    "shift": ShiftingCache,
    "ring": RingCache,
    "preallocate": PreallocatedCache,
}


@torch.inference_mode()
def run(
    windows: Sequence[int] = (128, 256, 512, 1024, 2048, 4096, 8192), longest: int = 32_768, seed: int = 0
) -> Iterator[StepCost]:
    """Measure every strategy at every window and depth, in one thread; yield the four strategies of a point together.

    Args:
        windows: W, each at least 1 and at most `longest`.
        longest: tokens at the last depth, and what "preallocate" reserves room for.

    Raises:
        ValueError: a window is out of range.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    for window in windows:
        if not 1 <= window <= longest:
            raise ValueError(f"window of {window} tokens is outside 1 to {longest}, the length of the longest text")
        caches = {strategy: make(window, longest + MAX_STEPS + 2) for strategy, make in CACHES.items()}
        position = 0
        for depth in depths(window, longest):
            chunk = random_tokens(depth - position, generator)
            for cache in caches.values():
                cache.append(*chunk)
            steps = [random_tokens(1, generator) for _ in range(num_steps_at(depth) + 2)]
            yield from measure(caches, window, depth, steps)
            position = depth + len(steps)


def measure(
    caches: Mapping[Strategy, Cache], window: int, depth: int, steps: Sequence[tuple[Tensor, Tensor]]
) -> list[StepCost]:
    """Add the same tokens to every cache, one cache after the other so that none spoils another's processor cache."""
    return [_timed(strategy, cache, window, depth, steps) for strategy, cache in caches.items()]


def _timed(
    strategy: Strategy, cache: Cache, window: int, depth: int, steps: Sequence[tuple[Tensor, Tensor]]
) -> StepCost:
    allocated = allocated_bytes(cache, *steps[0])  # the first two steps count bytes and warm up
    times = []
    for keys_H1D, values_H1D in steps[1:]:
        started = time.perf_counter()
        cache.append(keys_H1D, values_H1D)
        appended = time.perf_counter()
        attend(keys_H1D, cache)  # random numbers all: the new key serves as the query
        times.append((appended - started, time.perf_counter() - appended))
    return _cost(strategy, window, depth, cache.nbytes, allocated, times[1:])


def depths(window: int, longest: int) -> tuple[int, ...]:
    """Return W/2, W, 2W, ... up to `longest`, rounded down: before, at and after the point where the window is full."""
    found = [max(1, window // 2)]
    while found[-1] * 2 <= longest:
        found.append(max(found[-1] * 2, found[-1] + MAX_STEPS + 2))
    return tuple(depth for depth in found if depth <= longest)


def num_steps_at(depth: int) -> int:
    """Return how many steps to time: fewer where the growing caches are slow."""
    return max(5, min(MAX_STEPS, 200_000 // depth))


def attend(query_H1D: Tensor, cache: Cache) -> Tensor:
    """Return softmax(q.k) v over what the newest token may see, [H, 1, D]."""
    keys_HND, values_HND, visible_N = cache.view()
    mask_1N = None if visible_N is None else visible_N[None]
    return functional.scaled_dot_product_attention(query_H1D, keys_HND, values_HND, attn_mask=mask_1N)


def random_tokens(num_tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return keys and values of random tokens, each [H, T, D]."""
    size = (NUM_HEADS, num_tokens, HEAD_DIM)
    return torch.randn(size, generator=generator), torch.randn(size, generator=generator)


def allocated_bytes(cache: Cache, keys_H1D: Tensor, values_H1D: Tensor) -> int:
    """Append one token and return the bytes its operators asked the allocator for."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        cache.append(keys_H1D, values_H1D)
    return sum(max(event.self_cpu_memory_usage, 0) for event in recorded.events() or ())


def _cost(
    strategy: Strategy, window: int, depth: int, held_bytes: int, allocated: int, times: list[tuple[float, float]]
) -> StepCost:
    sums = sorted(append_s + attend_s for append_s, attend_s in times)
    return StepCost(
        strategy=strategy,
        window=window,
        tokens=depth,
        held_bytes=held_bytes,
        allocated_bytes=allocated,
        append_s=statistics.median(append_s for append_s, _ in times),
        attend_s=statistics.median(attend_s for _, attend_s in times),
        low_s=sums[len(sums) // 4],
        high_s=sums[-1 - len(sums) // 4],
        num_steps=len(times),
    )


def _visible(window: int, num_kept: int) -> Tensor | None:
    """Return the mask that hides all but the last W of `num_kept` tokens; None where it would hide nothing."""
    return None if num_kept <= window else torch.arange(num_kept) >= num_kept - window


def _storage_bytes(*tensors: Tensor) -> int:
    """Bytes really held: of the storage behind a tensor, not of the part that is looked at."""
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)
