"""Looks for the ways in which a cache is known to break, on a skeleton of the model (see `models.skeleton`).

Every probe compares what the cache does with a count or a formula of its own, never with another run of the same code
alone. `make_cache` is `KVCache` itself; tests hand in broken ones, and each has to be named.

Shape letters: N tokens fed, B rows, T tokens of a call, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backends.requests import CachePolicy
from models.attention_probe import WeightProbe, expected_weights
from models.cache_plan import LayerLimits
from models.config import ModelConfig
from models.decoder import Decoder
from models.doctor_memory import check_memory
from models.doctor_subject import MakeCache, Subject
from models.findings import Fault, Finding
from models.ring_cache import CacheSnapshot, KVCache
from models.skeleton import Skeleton, random_ids

_LOGIT_TOLERANCE = 1e-3
_WEIGHT_TOLERANCE = 0.02


@torch.inference_mode()
def examine(
    config: ModelConfig, policy: CachePolicy, window: int, sinks: int, make_cache: MakeCache = KVCache
) -> Iterator[Finding]:
    """Probe the cache of a model under a policy; yield findings as they come, a few seconds in all."""
    torch.set_num_threads(1)
    skeleton = Skeleton.of(config, window, sinks)
    subject = Subject(skeleton, policy, make_cache)
    yield from check_memory(subject)
    is_exact = True
    for index in range(len(skeleton.config.layers)):
        for finding in check_attention(Subject(skeleton.with_layer(index), policy, make_cache)):
            is_exact = is_exact and finding.fault is None
            yield finding
    if is_exact:  # what attends wrongly differs in chunks and rows too, and would be blamed on them
        yield check_chunks(subject)
        yield check_rows(subject)


def check_attention(subject: Subject) -> Iterator[Finding]:
    """Which tokens the newest one sees in one layer, and at which distance it believes them to be."""
    limits = subject.limits[0]
    reach = limits.slots or limits.window or subject.skeleton.window
    chunks = [reach + 3, *[1] * (reach + reach // 3)]  # the last token's slot then lies well inside the ring
    num_tokens = sum(chunks)
    probe = WeightProbe(subject.decoder.layers[0].attn, subject.config)  # type: ignore[arg-type]
    caches = [subject.cache(planned_length=num_tokens) for _ in range(probe.num_passes(num_tokens))]
    weights_N = probe.weights(subject.decoder, caches, chunks)
    seen = set(torch.nonzero(weights_N > 1e-9).flatten().tolist())
    expected = set(_visible(num_tokens, limits))
    name = _layer_name(limits)
    evidence = f"In {name}, token {num_tokens - 1} sees {_spans(seen)}; it should see {_spans(expected)}."
    yield Finding("exact", f"Tokens seen, {name}", evidence, _visibility_fault(seen, expected, num_tokens, limits))
    if subject.config.query_scale_beta == 0 and seen == expected:
        yield _check_distances(subject, weights_N, sorted(expected), limits)


def check_chunks(subject: Subject) -> Finding:
    """The same text in chunks and in single steps gives the same logits at every token."""
    window = subject.longest_window
    ids_1N = random_ids(3 * window + 2)
    single_VN = _logits(subject, ids_1N, [1] * ids_1N.shape[1])
    worst = 0.0
    for chunks in ([3 * window + 2], [window - 1, window + 1, window + 2], [window // 2 + 1] * 4):
        rest = 3 * window + 2 - sum(chunks)
        parts = [*chunks, rest] if rest > 0 else chunks
        worst = max(worst, float((_logits(subject, ids_1N, parts) - single_VN).abs().max()))
    limit = _LOGIT_TOLERANCE * float(single_VN.std())
    evidence = f"Over {3 * window + 2} tokens, chunks and single steps differ by at most {worst:.1e} in a logit."
    return Finding("exact", "Chunks and single steps", evidence, None if worst <= limit else "chunks differ from steps")


def check_rows(subject: Subject) -> Finding:
    """Rows of a batch at different lengths go on as each would alone."""
    window = subject.longest_window
    lengths = (window // 2 + 1, window + window // 3)
    alone = []
    for row, length in enumerate(lengths):
        cache = subject.cache()
        subject.decoder(random_ids(length, seed=row), cache, logits="none")
        alone.append(cache)
    both = subject.cache(num_rows=2)
    both.restore(_joined([cache.snapshot() for cache in alone]))
    worst = 0.0
    for step in range(window):
        ids_B = random_ids(1, num_rows=2, seed=100 + step).flatten()
        together_BV = subject.decoder.decode_step(ids_B, both)
        for row, cache in enumerate(alone):
            apart_BV = subject.decoder.decode_step(ids_B[row : row + 1], cache)
            worst = max(worst, float((together_BV[row] - apart_BV[0]).abs().max() / apart_BV.std()))
    evidence = (
        f"Rows of {lengths[0]} and {lengths[1]} tokens, {window} steps on, differ from each alone by {worst:.1e}."
    )
    return Finding("exact", "Rows of a batch", evidence, None if worst <= _LOGIT_TOLERANCE else "rows share a pointer")


def _visible(num_tokens: int, limits: LayerLimits) -> Iterator[int]:
    """Tokens the last of `num_tokens` may look at, counted here from the definition."""
    for token in range(num_tokens):
        if limits.window is None or token < limits.sinks or num_tokens - token <= limits.window:
            yield token


def _visibility_fault(seen: set[int], expected: set[int], num_tokens: int, limits: LayerLimits) -> Fault | None:
    if seen == expected:
        return None
    if limits.window is not None:
        last_slot = _ring_index(num_tokens - 1, limits)
        if seen == {token for token in expected if _ring_index(token, limits) <= last_slot}:
            return "mask by slot index"
    return "sees beyond the window" if seen - expected else "misses part of the window"


def _ring_index(token: int, limits: LayerLimits) -> int:
    """Where a ring keeps a token: what a broken cache takes for its place in time."""
    if limits.window is None or token < limits.sinks:
        return token
    return limits.sinks + (token - limits.sinks) % limits.window


def _check_distances(subject: Subject, weights_N: Tensor, visible: Sequence[int], limits: LayerLimits) -> Finding:
    num_tokens, period = len(weights_N), limits.slots or len(weights_N)
    measured = weights_N[visible].double()
    sink_logit = _learned_sink(subject.decoder)

    def error(distances: list[int]) -> float:
        expected = expected_weights(subject.config, torch.tensor(distances), num_tokens, sink_logit)
        return float((measured / expected).log().abs().max())

    wrapped = num_tokens > period
    right = [period - 1 - token if wrapped and token < limits.sinks else num_tokens - 1 - token for token in visible]
    restarted = [abs(_ring_index(num_tokens - 1, limits) - _ring_index(token, limits)) for token in visible]
    off = error(right)
    name = _layer_name(limits)
    evidence = f"In {name}, weights by distance are within {off:.1e} of those computed from the positions."
    fault: Fault | None = None
    if off > _WEIGHT_TOLERANCE:
        fault = "RoPE restarts at the wrap" if error(restarted) <= _WEIGHT_TOLERANCE else "wrong positions"
        evidence = f"In {name}, weights by distance are off by up to a factor of {torch.tensor(off).exp():.2g}."
    return Finding("exact", f"Positions, {name}", evidence, fault)


def _learned_sink(decoder: Decoder) -> float | None:
    sinks = decoder.layers[0].attn.sinks  # type: ignore[union-attr]
    return None if sinks is None else float(sinks[0])  # type: ignore[index]


def _logits(subject: Subject, ids_1N: Tensor, chunks: Sequence[int]) -> Tensor:
    cache = subject.cache(planned_length=ids_1N.shape[1])
    pieces = torch.split(ids_1N, list(chunks), dim=1)
    return torch.cat([subject.decoder(piece, cache, logits="all") for piece in pieces], dim=1)


def _joined(snapshots: Sequence[CacheSnapshot]) -> CacheSnapshot:
    """Put caches of one row each into one of several rows; the shorter rows get empty slots."""
    longest = max(layers[0].shape[2] for snapshot in snapshots for layers in snapshot.layers)

    def rows(index: int, part: int) -> Tensor:
        tensors = [snapshot.layers[index][part] for snapshot in snapshots]
        slots = max(tensor.shape[2] for tensor in tensors)
        padded = [torch.nn.functional.pad(tensor, (0, 0, 0, slots - tensor.shape[2])) for tensor in tensors]
        return torch.cat(padded)

    assert longest > 0
    layers = tuple((rows(index, 0), rows(index, 1)) for index in range(len(snapshots[0].layers)))
    return replace(snapshots[0], lengths=tuple(s.lengths[0] for s in snapshots), layers=layers)


def _layer_name(limits: LayerLimits) -> str:
    if limits.window is None:
        return "a layer that keeps everything"
    sinks = f" and {limits.sinks} sinks" if limits.sinks else ""
    return f"a layer with a window of {limits.window}{sinks}"


def _spans(tokens: set[int]) -> str:
    """Write {0, 1, 5, 6, 7} as "0-1, 5-7"."""
    spans: list[list[int]] = []
    for token in sorted(tokens):
        if spans and token == spans[-1][1] + 1:
            spans[-1][1] = token
        else:
            spans.append([token, token])
    return ", ".join(f"{low}-{high}" if high > low else f"{low}" for low, high in spans) or "none"
