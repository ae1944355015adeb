"""What the benchmark runs side by side: our two backends, and the libraries used as they come.

Everything below `serve` runs in a process of its own, one a contestant, and imports what it measures only there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from app.proof.peer_server import PeerServer
from app.proof.processes import forget_peak, peak_bytes, resident_bytes
from backends import registry
from backends.events import TextChunk
from backends.requests import CachePolicy, GenerationRequest, LoadRequest, Message, Sampling
from models.model_files import ModelFiles
from models.tokenizer import load_tokenizer

Write = Callable[[Sequence[int], int], Iterator[None]]
"""Given a prompt's ids and a number of tokens, yields once for each token written, as soon as it is there."""

_SPARE_TOKENS = 64  # for peers that read a prompt again from its text


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
        peak_bytes, final_bytes: resident memory of the process that holds the model, during the call and after it.
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


@dataclass(frozen=True)
class Loaded:
    """A contestant that is ready.

    Attributes:
        pid: of the process that holds the model.
        close: ends what was started besides this process.
    """

    write: Write
    pid: int = field(default_factory=os.getpid)
    close: Callable[[], None] = lambda: None


Load = Callable[[Setup], Loaded]
CONTESTANTS: dict[str, Load] = {}
"""By the name that tables show, in their order; each loads its model."""


def contestant(name: str) -> Callable[[Load], Load]:
    """Register a loader under a name."""

    def register(load: Load) -> Load:
        CONTESTANTS[name] = load
        return load

    return register


@contestant("Ringside ring")
def ringside_ring(setup: Setup) -> Loaded:
    """Our PyTorch backend, ring cache."""
    return _ours(setup, "ring", CachePolicy.RING)


@contestant("Ringside full")
def ringside_full(setup: Setup) -> Loaded:
    """Our PyTorch backend, a cache that keeps everything."""
    return _ours(setup, "ring", CachePolicy.FULL)


@contestant("Ringside llama.cpp")
def ringside_llamacpp(setup: Setup) -> Loaded:
    """Our loop on llama.cpp, bounded context."""
    return _ours(setup, "llamacpp", CachePolicy.RING)


@contestant("transformers DynamicCache")
def transformers_dynamic(setup: Setup) -> Loaded:
    """`generate` as it comes, bfloat16."""
    return _transformers(setup, None)


@contestant("transformers DynamicCache, float32")
def transformers_float32(setup: Setup) -> Loaded:
    """`generate` as it comes, float32."""
    return _transformers(setup, None, "float32")


@contestant("transformers StaticCache")
def transformers_static(setup: Setup) -> Loaded:
    """`generate(cache_implementation="static")`, bfloat16."""
    return _transformers(setup, "static")


@contestant("llama-cpp-python")
def llama_cpp_python(setup: Setup) -> Loaded:
    """`Llama.create_completion` as it comes, streamed."""
    from llama_cpp import Llama

    threads = {"n_threads": setup.num_threads, "n_threads_batch": setup.num_threads}
    model = Llama(model_path=setup.gguf, n_ctx=setup.longest_tokens, verbose=False, seed=0, **threads)

    def write(prompt: Sequence[int], num_tokens: int) -> Iterator[None]:
        options: dict[str, Any] = {"max_tokens": num_tokens, "temperature": 0.0, "stream": True}
        for chunk in model.create_completion(list(prompt), **options):
            if chunk["choices"][0]["finish_reason"] is None or chunk["choices"][0]["text"]:
                yield

    return Loaded(write)


@contestant("llama-cpp-python server")
def llama_cpp_python_server(setup: Setup) -> Loaded:
    """`python -m llama_cpp.server` as it comes, streamed over HTTP on loopback."""
    tokenizer = load_tokenizer(ModelFiles.open(setup.gguf))
    server = PeerServer(setup.gguf, setup.longest_tokens + _SPARE_TOKENS, setup.num_threads)

    def write(prompt: Sequence[int], num_tokens: int) -> Iterator[None]:
        yield from server.write(tokenizer.decode(prompt[1:]), num_tokens)

    return Loaded(write, server.pid, server.close)


def serve(connection: Connection, name: str, setup: Setup) -> None:
    """Entry point of a contestant's process: load, then answer (prompt, num_tokens) with a `Sample`, until ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    loaded: Loaded | None = None
    try:
        loaded = CONTESTANTS[name](setup)
        connection.send("ready")
        while True:
            connection.send(_sample(loaded, *connection.recv()))
    except Exception as error:  # the one place where this process meets its pipe
        connection.send(f"{type(error).__name__}: {error}")
    finally:
        if loaded is not None:
            loaded.close()


def _sample(loaded: Loaded, prompt: Sequence[int], num_tokens: int) -> Sample:
    forget_peak(loaded.pid)
    started_s = time.perf_counter()
    times = [time.perf_counter() - started_s for _ in loaded.write(prompt, num_tokens)]
    if not times:
        raise RuntimeError("no token was written")
    final_bytes = resident_bytes(loaded.pid)
    return Sample(
        num_prompt_tokens=len(prompt),
        first_token_s=times[0],
        decode_s=times[-1] - times[0],
        num_tokens=len(times),
        peak_bytes=max(peak_bytes(loaded.pid), final_bytes),  # the kernel's mark lags a little behind
        final_bytes=final_bytes,
    )


def _ours(setup: Setup, backend: str, policy: CachePolicy) -> Loaded:
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

    return Loaded(write)


def _transformers(setup: Setup, cache: str | None, precision: str = "bfloat16") -> Loaded:
    import queue
    import threading

    import torch
    from transformers import AutoModelForCausalLM
    from transformers.generation.streamers import BaseStreamer

    torch.set_num_threads(setup.num_threads)
    model = AutoModelForCausalLM.from_pretrained(setup.transformers_folder, dtype=getattr(torch, precision)).eval()
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

    return Loaded(write)


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
