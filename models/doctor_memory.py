"""Is a cache really bounded: its bytes by length, what a long prompt leaves behind, and what a step allocates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.profiler import ProfilerActivity, profile

from models.doctor_subject import Subject, addresses_of, storage_bytes
from models.findings import Fault, Finding
from models.ring_cache import KVCache

_STABLE_STEPS = 6


def check_memory(subject: Subject) -> Iterator[Finding]:
    """Yield one finding for each of the three."""
    by_length = check_bytes(subject)
    yield by_length
    if by_length.fault != "appends for ever":  # then a long prompt stays as well, for the same reason
        yield check_prefill(subject)
    yield check_allocations(subject)


def check_bytes(subject: Subject) -> Finding:
    """Storage at W, 2 W and 10 W, reached token by token, against the formula."""
    window, cache = subject.longest_window, subject.cache()
    lengths, seen = (window, 2 * window, 10 * window), []
    for before, length in zip((0, *lengths), lengths, strict=False):
        subject.feed(cache, length - before, chunk=1)
        seen.append(storage_bytes(cache))
    expected = [subject.formula_bytes(tokens) for tokens in lengths]
    evidence = f"Storage at W, 2 W and 10 W: {_listed(seen)} bytes; the formula gives {_listed(expected)}."
    fault: Fault | None = None
    if seen != expected:
        fault = "appends for ever" if seen[0] < seen[1] < seen[2] and expected[1] == expected[2] else "wrong size"
    return Finding("bounded", "Bytes by length", evidence, fault)


def check_prefill(subject: Subject) -> Finding:
    """A prompt read at once must leave only what later tokens can see, however long it is."""
    window, held = subject.longest_window, []
    for num_windows in (3, 6):
        cache = subject.cache()
        subject.feed(cache, num_windows * window, chunk=num_windows * window)
        held.append(storage_bytes(cache) - subject.formula_bytes(num_windows * window))
    evidence = (
        f"After prompts of {3 * window} and {6 * window} tokens, read at once, {_listed(held)} bytes are too many."
    )
    return Finding("bounded", "A long prompt", evidence, "keeps the whole prompt" if held[1] > held[0] else None)


def check_allocations(subject: Subject) -> Finding:
    """Storage stays where it is, and no step allocates as much as a layer's keys."""
    cache = subject.cache()
    subject.feed(cache, 2 * subject.longest_window, chunk=subject.longest_window)
    addresses, largest = addresses_of(cache), 0
    for _ in range(_STABLE_STEPS):
        largest = max(largest, _largest_allocation(subject, cache))
    num_moved = len(addresses - addresses_of(cache))
    usual = _usual_bytes(subject)  # a buffer no larger than what a step allocates anyway could be copied unseen
    buffers = [layer.tensors[0].nbytes for layer in cache.layers if layer.limits.slots]
    smallest_copy = min((num_bytes for num_bytes in buffers if num_bytes > usual), default=None)
    evidence = f"Over {_STABLE_STEPS} steps {num_moved} of {len(addresses)} buffers moved; the largest allocation was "
    evidence += f"{largest:,} bytes" + (f", the smallest key buffer has {smallest_copy:,}." if smallest_copy else ".")
    fault: Fault | None = None
    if smallest_copy is not None and largest >= smallest_copy:
        fault = "copies each step"
    elif num_moved:
        fault = "moves its storage"
    return Finding("bounded", "Allocations of a step", evidence, fault)


def _largest_allocation(subject: Subject, cache: KVCache) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        subject.feed(cache, 1, chunk=1)
    return max((event.self_cpu_memory_usage for event in recorded.events() or ()), default=0)


def _usual_bytes(subject: Subject) -> int:
    """Return the largest thing a step allocates anyway: projections, float64 angles, the scores of all slots."""
    config = subject.config
    widest = max(config.num_heads * config.head_dim, config.hidden_size, config.mlp_size)
    return max(8 * widest, 4 * config.num_heads * subject.longest_window)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)
