"""What the benchmark runs side by side: our two backends, and the libraries used as they come.

Everything below `serve` runs in a process of its own, one a contestant, and imports what it measures only there.
"""

from __future__ import annotations

import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from backends import registry
from backends.events import TextChunk
from backends.requests import CachePolicy, GenerationRequest, LoadRequest, Message, Sampling

Write = Callable[[Sequence[int], int], Iterator[None]]
"""Given a prompt's ids and a number of tokens, yields once for each token written, as soon as it is there."""


@dataclass(frozen=True)
class Setup:
    """What all contestants share.

    Attributes:
        gguf: the model's file.
        transformers_folder: the same weights, converted by transformers and saved by it.
        window, sinks: of our ring.
        longest_tokens: prompt and reply together; contestants that allocate up front reserve this.
    """

    gguf: str
    transformers_folder: str
    window: int
    sinks: int
    num_threads: int
    longest_tokens: int


@dataclass(frozen=True)
class Sample:
    """One prompt read and one reply written.

    Attributes:
        first_token_s: from the call to the first token: the prefill.
        decode_s: from the first to the last token.
        num_tokens: written.
        peak_bytes, final_bytes: resident memory of the process, during the call and after it.
    """

    num_prompt_tokens: int
    first_token_s: float
    decode_s: float
    num_tokens: int
    peak_bytes: int
    final_bytes: int

    @property
    def prefill_rate(self) -> float:
        return self.num_prompt_tokens / self.first_token_s

    @property
    def decode_rate(self) -> float | None:
        return (self.num_tokens - 1) / self.decode_s if self.num_tokens > 1 else None


CONTESTANTS: dict[str, Callable[[Setup], Write]] = {}
"""By the name that tables show; each loads its model and returns how it writes."""


def contestant(name: str) -> Callable[[Callable[[Setup], Write]], Callable[[Setup], Write]]:
    """Register a loader under a name."""

    def register(load: Callable[[Setup], Write]) -> Callable[[Setup], Write]:
        CONTESTANTS[name] = load
        return load

    return register


@contestant("Ringside ring")
def ringside_ring(setup: Setup) -> Write:
    """Our PyTorch backend, ring cache."""
    return _ours(setup, "ring", CachePolicy.RING)


@contestant("Ringside full")
def ringside_full(setup: Setup) -> Write:
    """Our PyTorch backend, a cache that keeps everything."""
    return _ours(setup, "ring", CachePolicy.FULL)


@contestant("Ringside llama.cpp")
def ringside_llamacpp(setup: Setup) -> Write:
    """Our loop on llama.cpp, bounded context."""
    return _ours(setup, "llamacpp", CachePolicy.RING)


@contestant("transformers DynamicCache")
def transformers_dynamic(setup: Setup) -> Write:
    """`generate` as it comes, bfloat16."""
    return _transformers(setup, None)


@contestant("transformers StaticCache")
def transformers_static(setup: Setup) -> Write:
    """`generate(cache_implementation="static")`, bfloat16."""
    return _transformers(setup, "static")


@contestant("llama-cpp-python")
def llama_cpp_python(setup: Setup) -> Write:
    """`Llama.create_completion` as it comes, streamed."""
    from llama_cpp import Llama

    model = Llama(model_path=setup.gguf, n_ctx=setup.longest_tokens, n_threads=setup.num_threads, verbose=False, seed=0)

    def write(prompt: Sequence[int], num_tokens: int) -> Iterator[None]:
        options: dict[str, Any] = {"max_tokens": num_tokens, "temperature": 0.0, "stream": True}
        for chunk in model.create_completion(list(prompt), **options):
            if chunk["choices"][0]["finish_reason"] is None or chunk["choices"][0]["text"]:
                yield

    return write


def serve(connection: Connection, name: str, setup: Setup) -> None:
    """Entry point of a contestant's process: load, then answer (prompt, num_tokens) with a `Sample` until told None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        write = CONTESTANTS[name](setup)
        connection.send("ready")
        while (task := connection.recv()) is not None:
            connection.send(_sample(write, *task))
    except Exception as error:  # the one place where this process meets its pipe
        connection.send(f"{type(error).__name__}: {error}")


def _sample(write: Write, prompt: Sequence[int], num_tokens: int) -> Sample:
    _forget_peak()
    started_s = time.perf_counter()
    times = [time.perf_counter() - started_s for _ in write(prompt, num_tokens)]
    if not times:
        raise RuntimeError("no token was written")
    final_bytes = int(psutil.Process().memory_info().rss)
    return Sample(
        num_prompt_tokens=len(prompt),
        first_token_s=times[0],
        decode_s=times[-1] - times[0],
        num_tokens=len(times),
        peak_bytes=max(_peak_bytes(), final_bytes),  # the kernel's mark lags a little behind
        final_bytes=final_bytes,
    )


def _ours(setup: Setup, backend: str, policy: CachePolicy) -> Write:
    load = LoadRequest(
        backend,
        setup.gguf,
        policy=policy,
        window=setup.window,
        sinks=setup.sinks,
        growing_context_tokens=setup.longest_tokens,
        num_threads=setup.num_threads,
    )
    loaded = registry.load(load, lambda progress: None)

    def write(prompt: Sequence[int], num_tokens: int) -> Iterator[None]:
        # Ids of an unfinished reply are taken as they are, so that every contestant reads the very same prompt. The
        # token that begins a text is put there by the backend itself.
        request = GenerationRequest(
            messages=(Message("assistant", "", tuple(prompt[1:])),),
            sampling=Sampling(temperature=0.0),
            max_new_tokens=num_tokens,
            ignore_end=True,
        )
        for event in loaded.generate(request, lambda: False):
            if isinstance(event, TextChunk) and event.token_ids:
                yield

    return write


def _transformers(setup: Setup, cache: str | None) -> Write:
    import queue
    import threading

    import torch
    from transformers import AutoModelForCausalLM
    from transformers.generation.streamers import BaseStreamer

    torch.set_num_threads(setup.num_threads)
    model = AutoModelForCausalLM.from_pretrained(setup.transformers_folder, dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None

    class Arrivals(BaseStreamer):  # type: ignore[misc]
        def __init__(self) -> None:
            self.tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
            self.saw_prompt = False

        def put(self, value: object) -> None:
            if self.saw_prompt:
                self.tokens.put(True)
            self.saw_prompt = True

        def end(self) -> None:
            self.tokens.put(False)

    def write(prompt: Sequence[int], num_tokens: int) -> Iterator[None]:
        arrivals, ids = Arrivals(), torch.tensor([list(prompt)])
        options: dict[str, Any] = {"max_new_tokens": num_tokens, "do_sample": False, "streamer": arrivals}
        if cache is not None:
            options["cache_implementation"] = cache
        failures: list[Exception] = []

        def generate() -> None:
            try:
                model.generate(ids, attention_mask=torch.ones_like(ids), **options)
            except Exception as error:  # raised again below, in the thread that waits
                failures.append(error)
                arrivals.end()

        thread = threading.Thread(target=generate)
        thread.start()
        while arrivals.tokens.get():
            yield
        thread.join()
        if failures:
            raise failures[0]

    return write


def convert_for_transformers(gguf: str, folder: str) -> Iterator[str]:
    """Let transformers read the GGUF file and save it in its own form; yields the folder. Takes minutes, once."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    path = Path(gguf)
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16
    )  # what was read from GGUF refuses to be saved
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    yield folder


def _forget_peak() -> None:
    """Start the kernel's high-water mark anew, where it can be (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_bytes() -> int:
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
