"""What drawing a token costs under each setting, in the model's own vocabulary and on its own logits.

Real logits, because some filters look at as much of a distribution as it takes. Every setting is timed in turn, so that
a busy moment of the machine falls on all. The benchmark (`app.proof.bench`) runs it in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backends.requests import CachePolicy, Sampling
from backends.token_rules import TokenRules
from models.decoder import Decoder
from models.model_files import ModelFiles
from models.precision import choose_precision
from models.ring_cache import KVCache
from models.token_sampler import TokenSampler
from models.tokenizer import load_tokenizer
from models.weights import load_decoder

_NUM_LOGITS = 24
_PROMPT_TOKENS = 2400  # more than the longest look back, so that every history is full

PLAIN = Sampling(temperature=0.8, top_k=None, top_p=1.0)
SETTINGS: dict[str, Sampling] = {
    "greedy": Sampling(temperature=0.0),
    "temperature": PLAIN,
    "top-k 64, top-p 0.95 (default)": Sampling(),
    "top-p 0.95": Sampling(top_k=None),
    "min-p 0.05": Sampling(top_k=None, top_p=1.0, min_p=0.05),
    "repetition penalty, 256 tokens": Sampling(top_k=None, top_p=1.0, repetition_penalty=1.1),
    "presence and frequency": Sampling(top_k=None, top_p=1.0, presence_penalty=0.5, frequency_penalty=0.5),
    "logit bias": Sampling(top_k=None, top_p=1.0, logit_bias=((5, 1.0), (6, -1.0))),
    "typical-p 0.9": Sampling(top_k=None, top_p=1.0, typical_p=0.9),
    "top-n-sigma 1": Sampling(top_k=None, top_p=1.0, top_n_sigma=1.0),
    "XTC": Sampling(top_k=None, top_p=1.0, xtc_probability=0.5),
    "DRY, 2,048 tokens": Sampling(top_k=None, top_p=1.0, dry_multiplier=0.8),
    "DRY, whole text": Sampling(top_k=None, top_p=1.0, dry_multiplier=0.8, dry_window=None),
    "mirostat 2": Sampling(top_k=None, top_p=1.0, mirostat_tau=5.0),
    "constraint": PLAIN,
}
"""By the name that tables show; each beside plain temperature sampling."""


@dataclass(frozen=True)
class SamplerCost:
    """Seconds of one draw.

    Attributes:
        low_s, high_s: quartiles.
        step_s: median of the model's own step, the draw not in it.
        vocab_size: V.
    """

    name: str
    median_s: float
    low_s: float
    high_s: float
    step_s: float
    vocab_size: int


def measure(model: str, text: str, num_threads: int, num_rounds: int = 15) -> Iterator[SamplerCost]:
    """Yield the cost of each of `SETTINGS`, once all are measured."""
    torch.set_num_threads(num_threads)
    decoder, tokens = _loaded(model, text)
    logits, step_s = _real_logits(decoder, tokens)
    vocab_size = logits[0].shape[-1]
    samplers = {name: _sampler(name, vocab_size, tokens) for name in SETTINGS}
    times_s: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for turn in range(num_rounds + 1):  # the first warms up
        for name, sampler in samplers.items():
            seconds = _timed(sampler, logits)
            times_s[name] += [seconds] if turn else []
    for name, found in times_s.items():
        low, median, high = torch.tensor(found, dtype=torch.float64).quantile(_QUARTILES).tolist()
        yield SamplerCost(name, median, low, high, step_s, vocab_size)


_QUARTILES = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)


def _loaded(model: str, text: str) -> tuple[Decoder, list[int]]:
    files, device = ModelFiles.open(model), torch.device("cpu")
    tokens = load_tokenizer(files).encode(text[: 16 * _PROMPT_TOKENS])[:_PROMPT_TOKENS]
    decoder, _ = load_decoder(files, files.config(), choose_precision("auto", files.weights.encodings, device), device)
    return decoder, tokens


@torch.inference_mode()
def _real_logits(decoder: Decoder, tokens: Sequence[int]) -> tuple[list[Tensor], float]:
    """Return logits [1, V] after the last of the tokens one by one, and the median seconds of such a step."""
    cache = KVCache(decoder.config, CachePolicy.RING, 512, 4, dtype=_dtype(decoder))
    decoder(torch.tensor([list(tokens[-256:-_NUM_LOGITS])]), cache, "last")
    logits, times_s = [], []
    for token in tokens[-_NUM_LOGITS:]:
        started_s = time.perf_counter()
        logits.append(decoder.decode_step(torch.tensor([token]), cache, static=False).float())
        times_s.append(time.perf_counter() - started_s)
    return logits, sorted(times_s)[len(times_s) // 2]


def _dtype(decoder: Decoder) -> torch.dtype:
    return next(decoder.parameters()).dtype


def _sampler(name: str, vocab_size: int, tokens: Sequence[int]) -> TokenSampler:
    sampling, device = SETTINGS[name], torch.device("cpu")
    rules = TokenRules(biases=tuple((int(token), bias) for token, bias in sampling.logit_bias), breakers=(1, 2, 3))
    sampler = TokenSampler(sampling, rules, vocab_size, device, constrained=name == "constraint")
    sampler.restart(tokens)
    return sampler


@torch.inference_mode()
def _timed(sampler: TokenSampler, logits: Sequence[Tensor]) -> float:
    """Return the mean seconds of a draw, with what surrounds it in a step."""
    started_s = time.perf_counter()
    for index, logits_1V in enumerate(logits):
        sampler.prepare((index + 0.5) / len(logits))
        sampler.note_drawn(int(sampler.draw(logits_1V)))
    return (time.perf_counter() - started_s) / len(logits)
