"""Check and time the decoder on this machine's device, on random weights: `python -m models.device_check`.

Made for a GPU that is lent for minutes: no files, no network, a few seconds a check. The same functions run in the
tests on a CPU. Exactness is held to the CPU in float32; times are medians over single tokens, each waited for.

Shape letters: V vocabulary, W window.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from backends.draws import uniform
from backends.requests import CachePolicy, Sampling
from models.config import LayerConfig, ModelConfig, RopeConfig
from models.decoder import Decoder
from models.ring_cache import KVCache
from models.sizing import kv_bytes
from models.token_step import TokenStep

SINKS = 4


@dataclass(frozen=True)
class Exactness:
    """How far the device is from the CPU, in float32, over several windows of one text.

    Attributes:
        prefill_error, decode_error: largest difference of any logit, relative to their standard deviation.
        num_equal_draws: of `num_draws` greedy tokens, drawn in a step that is recorded as a graph on CUDA.
    """

    model: str
    prefill_error: float
    decode_error: float
    num_equal_draws: int
    num_draws: int


@dataclass(frozen=True)
class Timing:
    """One model at one depth.

    Attributes:
        depth_windows: tokens in the cache before, in windows.
        token_ms, token_ms_spread: median and interquartile range.
        tokens_per_s: of the median.
        read_gb_per_s: weights and held keys and values, read once a token, over the median time.
        kv_bytes: allocated; `kv_bytes_formula` what they should be.
        allocated_bytes: by torch on a GPU; None on a CPU.
    """

    model: str
    policy: str
    window: int
    depth_windows: float
    token_ms: float
    token_ms_spread: float
    tokens_per_s: float
    read_gb_per_s: float
    kv_bytes: int
    kv_bytes_formula: int
    allocated_bytes: int | None


def tiny_config() -> ModelConfig:
    """Both layer kinds, grouped queries, q/k norm: small enough to compare every logit."""
    return _config("tiny hybrid", 64, 160, 4, 4, 2, 16, 97, (8, None, 8, None))


def gemma_1b_config() -> ModelConfig:
    """The shape of Gemma 3 1B: five sliding layers to a full one, one key head, a vocabulary of 262,144."""
    windows = tuple(None if number % 6 == 5 else 512 for number in range(26))
    return _config("Gemma 3 1B shape", 1152, 6912, 26, 4, 1, 256, 262_144, windows)


def mistral_7b_config() -> ModelConfig:
    """The shape of Mistral 7B v0.1: every layer slides over 4,096 tokens."""
    return _config("Mistral 7B shape", 4096, 14_336, 32, 32, 8, 128, 32_000, (4096,) * 32)


def random_decoder(config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Decoder:
    """Return a decoder whose weights are drawn on the CPU, so that they are the same on every device."""
    torch.manual_seed(seed)
    with torch.device("meta"):
        decoder = Decoder(config)
    decoder.to(dtype)  # before it takes memory: a 7B shape in float32 is more than most cards have
    decoder.to_empty(device=device)
    for name, weight in decoder.named_parameters():
        std = 0.3 if weight.ndim == 1 else weight.shape[-1] ** -0.5
        _fill(weight, std, 1.0 if "norm" in name else 0.0)
    return decoder.eval()


def check_exactness(device: torch.device, num_windows: int = 5) -> Exactness:
    """Compare prefill, decode and drawn tokens with the CPU, across wraps of the ring."""
    config = tiny_config()
    window, cpu = 8, torch.device("cpu")
    tokens_1T = torch.randint(config.vocab_size, (1, num_windows * window), generator=torch.Generator().manual_seed(1))
    expected, actual = (random_decoder(config, place, torch.float32) for place in (cpu, device))
    reference = expected(tokens_1T, _cache(config, CachePolicy.RING, window, cpu, torch.float32), "all")
    scale = float(reference.std())
    cache = _cache(config, CachePolicy.RING, window, device, torch.float32)
    prefill = actual(tokens_1T.to(device), cache, "all").cpu()
    cache.reset()
    steps = [actual(tokens_1T[:, place : place + 1].to(device), cache) for place in range(tokens_1T.shape[1])]
    decode = torch.cat(steps, dim=1).cpu()
    drawn = [_greedy(decoder, config, window, 4 * num_windows * window) for decoder in (expected, actual)]
    return Exactness(
        config.architecture,
        float((prefill - reference).abs().max()) / scale,
        float((decode - reference).abs().max()) / scale,
        sum(one == other for one, other in zip(*drawn, strict=True)),
        len(drawn[0]),
    )


def time_decode(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    window: int,
    depths: tuple[float, ...],
    num_steps: int,
) -> Iterator[Timing]:
    """Time single tokens at several depths under every policy."""
    decoder = random_decoder(config, device, dtype)
    weights_bytes = sum(weight.nbytes for weight in decoder.parameters())
    for policy in CachePolicy:
        cache = _cache(config, policy, window, device, dtype)
        step = TokenStep(decoder, cache, Sampling(seed=0))
        step.begin([1])
        for depth in depths:
            _fill_to(decoder, cache, int(depth * window))
            times_s = _timed(lambda number, step=step: step.feed(7, uniform(0, number)), num_steps, device)  # type: ignore[misc]
            median_s = statistics.median(times_s)
            low, _, high = statistics.quantiles(times_s, n=4)
            yield Timing(
                model=config.architecture,
                policy=policy.value,
                window=window,
                depth_windows=depth,
                token_ms=1e3 * median_s,
                token_ms_spread=1e3 * (high - low),
                tokens_per_s=1 / median_s,
                read_gb_per_s=(weights_bytes + cache.held_nbytes) / median_s / 1e9,
                kv_bytes=cache.held_nbytes,
                kv_bytes_formula=_expected_bytes(config, policy, window, cache),
                allocated_bytes=int(torch.cuda.memory_allocated(device)) if device.type == "cuda" else None,
            )
        del step, cache


def _config(
    name: str,
    hidden_size: int,
    mlp_size: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    vocab_size: int,
    windows: tuple[int | None, ...],
) -> ModelConfig:
    assert len(windows) == num_layers
    sliding, full = RopeConfig(theta=10_000.0, dims=head_dim), RopeConfig(theta=1_000_000.0, dims=head_dim)
    return ModelConfig(
        architecture=name,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        mlp_size=mlp_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        layers=tuple(LayerConfig(window, full if window is None else sliding) for window in windows),
        qk_norm="head",
        attention_scale=head_dim**-0.5,
        tied_embeddings=True,
    )


@torch.no_grad()
def _fill(weight: Tensor, std: float, mean: float) -> None:
    """Draw a weight on the CPU while it is small enough for that to be quick, else where it lies."""
    if weight.numel() <= 2**22:
        weight.copy_(torch.randn(weight.shape) * std + mean)
    else:
        weight.normal_(mean, std)


def _cache(config: ModelConfig, policy: CachePolicy, window: int, device: torch.device, dtype: torch.dtype) -> KVCache:
    return KVCache(config, policy, window, SINKS, batch_size=1, dtype=dtype, device=device)


def _greedy(decoder: Decoder, config: ModelConfig, window: int, num_tokens: int) -> list[int]:
    """Write on from one token, through the step that is recorded on CUDA."""
    device = next(decoder.parameters()).device
    step = TokenStep(
        decoder, _cache(config, CachePolicy.RING, window, device, torch.float32), Sampling(temperature=0.0)
    )
    step.begin([1])
    tokens = [1]
    for number in range(num_tokens):
        tokens.append(step.feed(tokens[-1], uniform(0, number)))
    return tokens[1:]


def _fill_to(decoder: Decoder, cache: KVCache, num_tokens: int) -> None:
    """Feed random tokens in chunks until the cache has seen so many."""
    vocab_size, device = decoder.config.vocab_size, cache.device
    while (missing := num_tokens - cache.position) > 0:
        decoder(torch.randint(vocab_size, (1, min(missing, 512)), device=device), cache, "none")


def _timed(step: Callable[[int], object], num_steps: int, device: torch.device) -> list[float]:
    """Return the seconds of each step after a few that warm up (and record the graph)."""
    times_s = []
    for number in range(num_steps + 4):
        start_s = time.perf_counter()
        step(number)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times_s.append(time.perf_counter() - start_s)
    return times_s[4:]


def _expected_bytes(config: ModelConfig, policy: CachePolicy, window: int, cache: KVCache) -> int:
    element_bytes = cache.layers[0].dtype.itemsize
    return kv_bytes(config, policy, window, SINKS, cache.position, element_bytes)


def main() -> None:
    """Print one JSON object a line: the machine, the checks, the times."""
    parser = argparse.ArgumentParser(description="Check and time the decoder on random weights.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=100, help="tokens timed at each depth")
    parser.add_argument("--small", action="store_true", help="leave out the 7B shape")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    print(json.dumps({"device": name, "torch": torch.__version__, "cuda": torch.version.cuda}), flush=True)
    print(json.dumps(asdict(check_exactness(device))), flush=True)
    shapes = [(gemma_1b_config(), 512), *([] if arguments.small else [(mistral_7b_config(), 4096)])]
    for config, window in shapes:
        for timing in time_decode(config, device, torch.bfloat16, window, (0.25, 1, 4), arguments.steps):
            print(json.dumps(asdict(timing)), flush=True)


if __name__ == "__main__":
    main()
