"""Recorded steps, on a double of CUDA graphs that freezes at recording what the host decides, as the real ones do."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from backends.requests import CachePolicy, KVType, Sampling
from models.cuda_graph import GraphedStep, Step
from models.decoder import Decoder
from models.device_check import random_decoder, tiny_config
from models.kv_codes import supports
from models.ring_cache import KVCache
from models.token_step import TokenStep

CPU = torch.device("cpu")
CONFIG = tiny_config()  # layers of a window of 8 beside full ones
VOCAB_SIZE = 97


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A layer this small is done before a second thread has woken up."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class FrozenRecorder:
    """Records a step together with what the host knew: a replay decides everything by that, not by what holds now.

    Args:
        refuse: raised at recording, as a driver does.
    """

    def __init__(self, cache: KVCache, refuse: Exception | None = None) -> None:
        self._cache = weakref.ref(cache)  # as a real graph, it owns tensors and not the cache
        self._refuse = refuse
        self.num_records = self.num_replays = 0

    def warm_up(self, step: Step) -> None:
        step()

    def record(self, step: Step) -> FrozenRecording:
        self.num_records += 1
        if self._refuse is not None:
            raise self._refuse
        cache = self._cache()
        assert cache is not None
        return FrozenRecording(self, weakref.WeakMethod(step), cache)


class FrozenRecording:
    """One step as it was when it was recorded."""

    def __init__(self, recorder: FrozenRecorder, step: weakref.WeakMethod[Step], cache: KVCache) -> None:
        self._recorder, self._step, self._cache = recorder, step, weakref.ref(cache)
        self._lengths = list(cache.lengths)

    def replay(self) -> None:
        self._recorder.num_replays += 1
        step, cache = self._step(), self._cache()
        assert step is not None
        assert cache is not None
        lengths, cache.lengths = cache.lengths, list(self._lengths)
        try:
            step()
        finally:
            cache.lengths = lengths


class Writer:
    """A cache and a step, plain or recorded, that write greedily."""

    def __init__(
        self, decoder: Decoder, policy: CachePolicy, window: int, kv_type: KVType, num_rows: int, recorded: bool
    ) -> None:
        self.decoder = decoder
        self.cache = KVCache(CONFIG, policy, window, sinks=2, batch_size=num_rows, device=CPU, kv_type=kv_type)
        self.recorder = FrozenRecorder(self.cache) if recorded else None
        self.step = TokenStep(decoder, self.cache, Sampling(temperature=0.0), num_rows=num_rows, recorder=self.recorder)
        self._generator = torch.Generator().manual_seed(3)

    def read(self, num_tokens: int, planned: bool = True) -> None:
        """Forget everything and read a prompt."""
        self.cache.reset(planned_length=num_tokens if planned else 0)
        tokens_BT = torch.randint(VOCAB_SIZE, (len(self.cache.lengths), num_tokens), generator=self._generator)
        self.decoder(tokens_BT, self.cache, "none")
        self.step.begin(tokens_BT[0].tolist())

    def write(self, num_tokens: int) -> list[Tensor]:
        """Feed tokens that do not depend on what is drawn; return the logits of every step."""
        rows, logits = len(self.cache.lengths), []
        for number in range(num_tokens):
            self.step.feed_rows([(7 * number + row) % VOCAB_SIZE for row in range(rows)], [0.5] * rows)
            seen = self.step.logits()
            assert seen is not None
            logits.append(seen)
        return logits


Story = Callable[[Writer], Iterator[list[Tensor]]]


def short_after_long(writer: Writer) -> Iterator[list[Tensor]]:
    """A long text, then chats shorter than the smallest ring, of every size between the rings, and long again."""
    for prompt, reply in ((12, 4), (2, 6), (30, 3), (3, 26)):
        writer.read(prompt)
        yield writer.write(reply)


def going_back(writer: Writer) -> Iterator[list[Tensor]]:
    """Moments are restored that lie before and behind the ends of the rings."""
    writer.read(3)
    early = writer.cache.snapshot()
    yield writer.write(8)
    middle = writer.cache.snapshot()
    yield writer.write(20)
    for moment in (early, middle):
        writer.cache.restore(moment)
        yield writer.write(4)


@pytest.mark.parametrize("story", [short_after_long, going_back])
@pytest.mark.parametrize(("kv_type", "num_rows"), [("auto", 1), ("int8", 2), ("fp8", 1)])
@pytest.mark.parametrize("window", [5, 24])
@pytest.mark.parametrize("policy", list(CachePolicy))
def test_recorded_steps_give_what_plain_ones_give(
    policy: CachePolicy, window: int, kv_type: KVType, num_rows: int, story: Story
) -> None:
    if kv_type != "auto" and not supports(kv_type, CPU):
        pytest.skip("this torch has no such numbers")
    decoder = random_decoder(CONFIG, CPU, torch.float32)
    plain, recorded = (Writer(decoder, policy, window, kv_type, num_rows, flag) for flag in (False, True))
    atol = 2e-4 if kv_type == "auto" else 0.05  # a sum in another order may round to the code beside; stale: over 1
    for logits, found_logits in zip(story(plain), story(recorded), strict=True):
        for expected, found in zip(logits, found_logits, strict=True):
            torch.testing.assert_close(found, expected, atol=atol, rtol=1e-4)
    assert recorded.recorder is not None
    assert recorded.recorder.num_replays > recorded.recorder.num_records > 0


def test_rings_of_two_sizes_are_recorded_once_for_each_way_of_being_full() -> None:
    writer = Writer(random_decoder(CONFIG, CPU, torch.float32), CachePolicy.RING, 24, "auto", 1, recorded=True)
    writer.read(2)
    writer.write(40)
    assert writer.recorder is not None
    assert writer.recorder.num_records == 3  # none full, the small one, both


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("recorded", [False, True])
def test_a_dropped_cache_is_gone_without_the_garbage_collector(recorded: bool) -> None:
    writer = Writer(random_decoder(CONFIG, CPU, torch.float32), CachePolicy.RING, 8, "auto", 1, recorded)
    writer.read(3)
    writer.write(20)
    keys = weakref.ref(writer.cache.layers[0])
    with no_collector():
        del writer
        assert keys() is None


def test_a_refused_recording_goes_on_eagerly_and_says_why() -> None:
    decoder = random_decoder(CONFIG, CPU, torch.float32)
    plain, refused = (Writer(decoder, CachePolicy.RING, 8, "auto", 1, recorded=False) for _ in range(2))
    recorder = FrozenRecorder(
        refused.cache, RuntimeError("CUDA error: operation not permitted\nwhen stream is capturing")
    )
    refused.step = TokenStep(decoder, refused.cache, Sampling(temperature=0.0), recorder=recorder)
    for writer in (plain, refused):
        writer.read(3)
    torch.testing.assert_close(refused.write(30), plain.write(30), atol=2e-4, rtol=1e-4)
    assert refused.step.refused == "CUDA error: operation not permitted when stream is capturing"
    assert recorder.num_records == 1, "it is not asked again"


def test_memory_that_runs_out_while_recording_is_not_a_refusal() -> None:
    cache = KVCache(CONFIG, CachePolicy.RING, 8, 2)
    graphed = GraphedStep(cache, FrozenRecorder(cache, torch.OutOfMemoryError("CUDA out of memory")))
    graphed.run(lambda: None)
    with pytest.raises(torch.OutOfMemoryError):
        graphed.run(lambda: None)
