"""A backend without a model: deterministic text at any rate, faults on demand, memory figures of a small real buffer.

It ships with the app (a demo that needs no weights) and drives the tests. Standard library only.

See `backends.echo_options` for what it can be told to do.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from itertools import count

from backends import draws, echo_text
from backends.contract import Cancelled, LoadedModel, ReportProgress
from backends.echo_cache import ROW_BYTES, EchoCache
from backends.echo_options import EchoOptions
from backends.errors import BadRequestError, ModelFileError
from backends.events import Event, Finished, FinishReason, LoadProgress, MemoryFigures, PrefillProgress, TextChunk
from backends.reply_stops import reply_stops
from backends.requests import GenerationRequest, LoadRequest, Message

_PREFILL_CHUNK_TOKENS = 64
_NAP_S = 0.05
_LOAD_STEPS = 20

Sleep = Callable[[float], None]


def load(request: LoadRequest, progress: ReportProgress) -> EchoBackend:
    """Return a backend that echoes.

    Raises:
        BadRequestError: an option is unknown or not what it should be, or the window is below 1.
        ModelFileError: `load_error` asked for it.
    """
    options = EchoOptions.parse(request.options)
    if request.window < 1:
        raise BadRequestError(f"A window of {request.window} tokens is below 1.", "Choose a window of 1 or more.")
    for step in range(_LOAD_STEPS + 1):
        progress(LoadProgress("Loading nothing", step, _LOAD_STEPS))
        time.sleep(options.load_s / (_LOAD_STEPS + 1))
    if options.load_error:
        raise ModelFileError(options.load_error)
    return EchoBackend(request, options)


class EchoBackend:
    """See the module; one sliding and one full layer, each a real buffer of `ROW_BYTES` a token.

    Args:
        clock, sleep: seconds; given by tests.
    """

    def __init__(
        self,
        request: LoadRequest,
        options: EchoOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._request = request
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._cache = EchoCache(request.policy, request.window, request.sinks or 0)
        self._fault_pending = options.fail_at is not None
        self._prompt: dict[int, str] = {}

    @property
    def info(self) -> LoadedModel:
        """Facts of a model that is not there."""
        return LoadedModel(
            name="Echo",
            architecture="echo",
            device="cpu",
            precision="text",
            policy=self._request.policy,
            num_sliding_layers=1,
            num_full_layers=1,
            trained_window=self._request.window,
            window=self._request.window,
            asked_window=self._request.window,
            sinks=self._cache.sinks,
            context_tokens=None,
            vocab_size=echo_text.VOCAB_SIZE,
            weights_bytes=0,
            kv_bytes_per_token_full=2 * ROW_BYTES,
            has_chat_template=True,
            reasoning_opening=self._options.reasoning_opening,
            notices=("The echo backend has no model: it writes a fixed text, for trying out the app.",),
        )

    def generate(self, request: GenerationRequest, cancelled: Cancelled) -> Iterator[Event]:
        """See `backends.contract.Backend.generate`."""
        if request.json_schema is not None or request.grammar is not None:
            raise BadRequestError(
                "The echo backend follows no JSON schema or grammar.", "Remove it, or choose another backend."
            )
        prompt = [piece for message in request.messages for piece in _pieces_of(message)]
        if not prompt:
            raise BadRequestError("The prompt is empty.", "Write something first.")
        seed = draws.fresh_seed() if request.sampling.seed is None else request.sampling.seed
        self._reset_cache(request.messages)
        self._prompt = {echo_text.piece_id(piece): piece for piece in prompt}
        prompt_ids = tuple(map(echo_text.piece_id, prompt))
        num_read = 0
        for num_read in self._prefill(prompt, cancelled):
            yield PrefillProgress(num_read, len(prompt), prompt_ids=prompt_ids)
            prompt_ids = ()
        if num_read < len(prompt):
            yield Finished("cancelled", seed, len(prompt))
            return
        reason, num_generated = yield from self._reply(request, seed, cancelled)
        yield Finished(reason, seed, len(prompt), num_generated)

    def memory(self) -> MemoryFigures:
        """Figures of the buffer as it is."""
        return self._cache.figures()

    def piece(self, token_id: int) -> bytes:
        """See `backends.contract.SpellsTokens`."""
        return self._prompt.get(token_id, "").encode("utf-8", "replace")

    def close(self) -> None:
        """Drop the buffer."""
        self._cache = EchoCache(self._request.policy, 1, 0)

    def _prefill(self, prompt: list[str], cancelled: Cancelled) -> Iterator[int]:
        """Yield the number of prompt tokens read, from 0, chunk by chunk; end early when cancelled."""
        pace = _Pace(self._options.prefill_rate, self._clock, self._sleep)
        yield 0
        for start in range(0, len(prompt), _PREFILL_CHUNK_TOKENS):
            chunk = prompt[start : start + _PREFILL_CHUNK_TOKENS]
            if not pace.wait(start + len(chunk), cancelled):
                return
            for piece in chunk:
                self._cache.append(piece)
            self._maybe_fail(0)
            yield start + len(chunk)

    def _reply(
        self, request: GenerationRequest, seed: int, cancelled: Cancelled
    ) -> Generator[TextChunk, None, tuple[FinishReason, int]]:
        """Yield the chunks; return the reason and the number of tokens."""
        opening = self._options.reasoning_opening
        matcher = reply_stops(request, opening, request.messages[-1].text if request.raw else opening)
        pace = _Pace(self._options.rate, self._clock, self._sleep)
        pieces = self._pieces(request, seed)
        reason: FinishReason = "stop"
        num_generated = 0
        for index in count(1):
            if request.max_new_tokens is not None and index > request.max_new_tokens:
                reason = "length"
                break
            self._maybe_fail(index)
            if index == self._options.stall_at:
                pace = _Pace(0.0, self._clock, self._sleep)
            if not pace.wait(index, cancelled):
                reason = "cancelled"
                break
            piece = next(pieces, None)
            if piece is None:
                break
            self._cache.append(piece)
            num_generated = index
            yield TextChunk(matcher.push(piece), (echo_text.piece_id(piece),), not matcher.holds_text)
            if matcher.matched:
                break
        if held := matcher.flush():
            yield TextChunk(held, ())
        return "stop" if matcher.matched else reason, num_generated

    def _pieces(self, request: GenerationRequest, seed: int) -> Iterator[str]:
        start = _num_written(request.messages)
        endless = request.ignore_end
        if self._options.text == "document":
            pieces = echo_text.document(0 if request.sampling.temperature == 0 else seed, start)
        elif self._options.text == "script":
            pieces = echo_text.repeated(self._options.script, start, endless)
        else:
            said = next((m.text for m in reversed(request.messages) if m.role == "user"), "")
            pieces = echo_text.repeated(echo_text.pieces_of(said), start, endless)
        if self._options.end_after is None or endless:
            return pieces
        return (piece for _, piece in zip(range(start, self._options.end_after), pieces, strict=False))

    def _reset_cache(self, messages: tuple[Message, ...]) -> None:
        sinks = self._request.sinks
        if sinks is None:
            sinks = sum(len(_pieces_of(message)) for message in messages if message.role == "system")
        self._cache = EchoCache(self._request.policy, self._request.window, sinks)

    def _maybe_fail(self, index: int) -> None:
        if not self._fault_pending or index != self._options.fail_at:
            return
        self._fault_pending = False
        match self._options.fail_kind:
            case "memory":
                raise MemoryError
            case "abort":
                os.abort()
            case "device":
                raise AcceleratorError("CUDA error: an illegal memory access was encountered")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                raise RuntimeError(f"planted before token {index}")


class AcceleratorError(RuntimeError):
    """Stands for torch's error of this name."""


class _Pace:
    """Waits until the n-th token is due; `rate` None is never, 0 is for ever."""

    def __init__(self, rate: float | None, clock: Callable[[], float], sleep: Sleep) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._start_s = clock()

    def wait(self, index: int, cancelled: Cancelled) -> bool:
        """Return True when the token is due, False as soon as the generation is cancelled."""
        while not cancelled():
            if self._rate is None:
                return True
            left_s = self._start_s + index / self._rate - self._clock() if self._rate else _NAP_S
            if left_s <= 0:
                return True
            self._sleep(min(left_s, _NAP_S))
        return False


def _pieces_of(message: Message) -> list[str]:
    return echo_text.pieces_of(message.text)


def _num_written(messages: tuple[Message, ...]) -> int:
    """Return how many pieces of the reply exist already: those of a last message that is the assistant's."""
    if not messages or messages[-1].role != "assistant":
        return 0
    last = messages[-1]
    return last.num_drawn_tokens if last.known_pieces is not None else len(_pieces_of(last))
