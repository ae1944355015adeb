"""The loop: read the prompt in chunks, then feed one token and draw the next for as long as the request says.

`drafts` is the same loop for several replies at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from backends.contract import Cancelled, LoadedModel
from backends.errors import OutOfMemoryError, RingsideError
from backends.events import Event, Finished, MemoryFigures, PrefillProgress, TextChunk
from backends.requests import GenerationRequest, Sampling
from backends.ring import memory
from backends.ring.drafts import NOT_A_NUMBER, NOT_A_NUMBER_HINT, Drafts, RowCancelled
from backends.ring.prompting import Prompts
from backends.ring.reply import Reply
from backends.ring.saved_state import identity_in, read_state, write_state
from backends.ring.scoring import token_losses
from backends.ring.sequence import CachedText
from backends.token_rules import token_rules
from models.constraint import Constraints
from models.ring_cache import KVCache
from models.sampling import INVALID_TOKEN
from models.text_model import TextCache, TextModel
from models.token_step import TokenStep

FEWEST_PINNED_TOKENS = 4
"""Pinned when the system prompt is to be and there is none: full layers collapse once the first token is gone."""

T = TypeVar("T")

_SNAPSHOT_BUDGET_BYTES = 2**30
_RUNS_EAGERLY = "The GPU refused to record steps ({reason}), so each is sent to it anew: slower, with the same text."
_FEWEST_CHUNK_TOKENS = 16
_MOST_CHUNK_TOKENS = {"cpu": 512, "cuda": 2048}
_CHUNK_WEIGHT_BYTES = {"cpu": 2**36, "cuda": 2**44}  # weights times tokens that pass in some tenths of a second


class RingBackend:
    """One model, its cache, and the loop; see `backends.contract.Backend`.

    Args:
        model: with its weights, on the device it runs on.
        new_cache: makes an empty cache with that many sinks and rows, or raises BadRequestError if it does not fit.
            Several rows, of a `KVCache`, are asked for only where `info.drafts_together`.
        device: where the model runs.
        pins_system_prompt: whether the sinks are the system prompt of each chat.
        prompts: turns chats into token ids.
        end_ids: tokens that end a text, beside those that `prompts` knows.
        info: what was loaded.
        identity: what a saved state of this cache belongs to, beside what `info` says; None where none can be kept.

    Raises:
        BadRequestError: the cache does not fit in memory.
    """

    def __init__(
        self,
        model: TextModel,
        new_cache: Callable[[int, int], TextCache],
        device: torch.device,
        pins_system_prompt: bool,
        prompts: Prompts,
        end_ids: Sequence[int],
        info: LoadedModel,
        identity: Mapping[str, str] | None = None,
    ) -> None:
        self._loaded: TextModel | None = model
        self._new_cache: Callable[[int, int], TextCache] | None = new_cache
        self._device = device
        self._pins_system_prompt = pins_system_prompt
        self._prompts = prompts
        ends = {*end_ids, *prompts.end_ids}
        self._end_ids = tuple(sorted(end for end in ends if 0 <= end < model.vocab_size))  # files name ids beyond it
        self._info = info
        self._identity = dict(identity or {})
        self._empty_ids = prompts.tokenizer.empty_ids(model.vocab_size)
        self._device_process = memory.DeviceProcessMemory(self._device)
        self._text: CachedText | None = None
        self._drafts: Drafts | None = None
        self._step: TokenStep | None = None
        self._step_settings: tuple[Sampling, bool, bool] | None = None
        tokenizer = prompts.tokenizer
        piece = tokenizer.pieces.__getitem__
        self._constraints = Constraints(tokenizer.encode, piece, model.vocab_size, self._end_ids)
        self._open_text()

    @property
    def info(self) -> LoadedModel:
        return self._info

    @property
    def parts(self) -> tuple[TextModel, CachedText, Prompts]:
        """For `examination`."""
        return self._model, self._open_text(), self._prompts

    def memory(self) -> MemoryFigures:
        return memory.figures(self._info, self._text, self._drafts, self._device, self._device_process)

    def close(self) -> None:
        """Drop weights, cache and snapshots."""
        self._drop_cache()
        self._loaded = self._new_cache = None

    def generate(self, request: GenerationRequest, cancelled: Cancelled) -> Iterator[Event]:
        """See `backends.contract.Backend.generate`.

        Raises:
            BadRequestError: the prompt is empty, the template refuses it, or the cache it needs does not fit.
            OutOfMemoryError: memory ran out; the cache is dropped.
            RingsideError: the model's output is not a number.
        """
        prompt = self._prompts.ids(request.messages, request.raw)
        self._pin(request)
        yield from self._guarded(self._reply(request, prompt, cancelled))

    def generate_together(
        self, request: GenerationRequest, seeds: Sequence[int], cancelled: RowCancelled
    ) -> Iterator[tuple[int, Event]]:
        """See `backends.contract.DraftsTogether.generate_together`; raises like `generate`.

        What the cache held of every reply is kept like any other moment of the text, so whichever is picked goes on
        from there.
        """
        prompt = self._prompts.ids(request.messages, request.raw)
        self._pin(request)
        try:
            yield from self._guarded(self._draft(request, prompt, seeds, cancelled))
        finally:
            self._drafts = None
            memory.give_back(self._device)

    def token_losses(self, text: str, cancelled: Cancelled) -> Iterator[float]:
        """See `backends.contract.ScoresText`; what was in the cache is forgotten."""
        self._drop_cache()
        yield from token_losses(self._model, self._open_text().cache, self._prompts.plain_ids(text), cancelled)
        self._drop_cache()

    def piece(self, token_id: int) -> bytes:
        """See `backends.contract.SpellsTokens`."""
        return self._prompts.tokenizer.spelled(token_id)

    def save_state(self, path: str, budget_bytes: int) -> int:
        """See `backends.contract.KeepsState`."""
        text = self._text
        if not self._identity or text is None or not text.tokens or text.cache.held_nbytes > budget_bytes:
            return 0
        return write_state(path, text.tokens, text.cache.snapshot("cpu"), self._state_identity())

    def load_state(self, path: str) -> int:
        """See `backends.contract.KeepsState`."""
        if self._pins_system_prompt and (sinks := identity_in(path).get("sinks")) not in (None, str(self._info.sinks)):
            self._drop_cache()  # how many it takes to pin a chat's system prompt is not known before its request
            self._info = replace(self._info, sinks=int(sinks))
        tokens, snapshot = read_state(path, self._state_identity())
        self._open_text().recall(tokens, snapshot)
        return len(tokens)

    def _state_identity(self) -> dict[str, str]:
        info = self._info
        in_force = {"policy": info.policy.value, "window": str(info.window), "sinks": str(info.sinks)}
        return {**self._identity, **in_force, "precision": info.precision}

    def _reply(self, request: GenerationRequest, prompt: list[int], cancelled: Cancelled) -> Iterator[Event]:
        text = self._open_text()
        constraint = self._constraints.open(request)
        reply = Reply(request, self._prompts.tokenizer, prompt, constraint, self._info.reasoning_opening)
        for progress in self._read_prompt(text, prompt, cancelled):
            yield progress
        if cancelled():
            yield Finished("cancelled", reply.seed, len(prompt))
            return
        step = self._step_for(request, text)
        step.begin(prompt)
        token = self._first_token(step, text, prompt, reply)
        yield replace(progress, done_tokens=len(prompt))
        reason = reply.end_reason
        while reason is None:
            if token in self._end_ids:
                reason = "stop"
                break
            yield TextChunk(reply.push(token), (token,), reply.is_settled)
            reason = reply.end_reason or ("cancelled" if cancelled() else None)
            if reason is None and self._model.must_start_over(text.cache, 1):
                yield from self._read_again(text, cancelled)
                reason = "cancelled" if cancelled() else None
            if reason is None:  # the last token of a reply is fed by the reply that follows
                token = self._next_token(step, text, token, reply)
        text.logits_BV = step.logits()
        self._tell_of_refusal(step)
        if rest := reply.flush():
            yield TextChunk(rest, ())
        yield Finished(reply.end_reason or reason, reply.seed, len(prompt), reply.num_tokens)

    def _draft(
        self, request: GenerationRequest, prompt: list[int], seeds: Sequence[int], cancelled: RowCancelled
    ) -> Iterator[tuple[int, Event]]:
        text, rows = self._open_text(), range(len(seeds))
        replies = []
        for seed in seeds:
            seeded = replace(request, sampling=replace(request.sampling, seed=seed))
            constraint = self._constraints.open(request)
            opening = self._info.reasoning_opening
            replies.append(Reply(seeded, self._prompts.tokenizer, prompt, constraint, opening))
        for progress in self._read_prompt(text, prompt, lambda: all(map(cancelled, rows))):
            yield from ((row, progress) for row in rows)
        if all(map(cancelled, rows)):
            yield from ((row, Finished("cancelled", seed, len(prompt))) for row, seed in zip(rows, seeds, strict=True))
            return
        drafts = self._drafts = self._open_drafts(request, text, prompt, replies)
        tokens = drafts.first_tokens(prompt[-1], text.logits_BV)
        yield from ((row, replace(progress, done_tokens=len(prompt))) for row in rows)
        yield from drafts.write(tokens, cancelled)

    def _open_drafts(
        self, request: GenerationRequest, text: CachedText, prompt: list[int], replies: list[Reply]
    ) -> Drafts:
        """Copy what the cache holds of the prompt into a row a reply."""
        assert self._new_cache is not None, "the backend is closed"
        cache = self._new_cache(self._info.sinks, len(replies))
        assert isinstance(cache, KVCache), "asked for several rows without `info.drafts_together`"
        snapshot = text.cache.snapshot()
        for row in range(len(replies)):
            cache.set_row(row, snapshot)
        step = self._new_step(request, cache, len(replies))
        step.begin(prompt)
        chunk_tokens = self._chunk_tokens
        return Drafts(
            self._model, cache, step, replies, text.tokens, len(prompt), self._end_ids, chunk_tokens, text.recall
        )

    def _guarded(self, events: Iterator[T]) -> Iterator[T]:
        """Pass events on; where making them fails, drop the cache, which may hold half a step."""
        failure: OutOfMemoryError | None = None
        try:
            yield from events
        except Exception as error:
            self._drop_cache()
            failure = memory.as_out_of_memory(error)
            if failure is None:
                raise
        if failure is not None:  # raised out here, so that it holds none of the frames that hold the cache
            raise failure

    def _read_prompt(self, text: CachedText, prompt: list[int], cancelled: Cancelled) -> Iterator[PrefillProgress]:
        """Bring the cache to the prompt but for its last token, or to all of it where its logits are known."""
        num_reused = text.take_up(prompt)
        if self._model.must_start_over(text.cache, len(prompt) - num_reused):
            num_reused = text.start_over(len(prompt))
        yield PrefillProgress(num_reused, len(prompt), num_reused, tuple(prompt))
        for num_read in self._read(text, prompt, cancelled):
            yield PrefillProgress(num_read, len(prompt), num_reused)

    def _read(self, text: CachedText, prompt: list[int], cancelled: Cancelled) -> Iterator[int]:
        """Feed the prompt but for its last token, which is the first decode step; yield the tokens read so far."""
        if len(text.tokens) >= len(prompt) - 1:
            return
        text.remember()
        while len(text.tokens) < len(prompt) - 1 and not cancelled():
            start = len(text.tokens)
            self._feed_chunk(text, prompt[start : min(start + self._chunk_tokens, len(prompt) - 1)])
            yield len(text.tokens)
        text.remember()

    def _read_again(self, text: CachedText, cancelled: Cancelled) -> Iterator[PrefillProgress]:
        """Feed all that was fed once more, since the next token changes how positions are told (longrope)."""
        tokens = text.tokens.tolist()
        text.start_over(len(tokens) + 1)
        for num_read in self._read(text, [*tokens, 0], cancelled):
            yield PrefillProgress(num_read, len(tokens))

    @torch.inference_mode()
    def _feed_chunk(self, text: CachedText, tokens: list[int]) -> None:
        self._model(torch.tensor([tokens], device=self._device), text.cache, logits="none")
        text.note_fed(tokens)

    def _first_token(self, step: TokenStep, text: CachedText, prompt: list[int], reply: Reply) -> int:
        if len(text.tokens) < len(prompt):
            return self._next_token(step, text, prompt[-1], reply)
        assert text.logits_BV is not None, "a prompt is taken up whole only where its logits are known"
        _constrain(step, reply)
        return _checked(step.draw_from(text.logits_BV, (reply.number,))[0])

    def _next_token(self, step: TokenStep, text: CachedText, token: int, reply: Reply) -> int:
        _constrain(step, reply)
        drawn = step.feed(token, reply.number)
        text.note_fed((token,))
        return _checked(drawn)

    def _step_for(self, request: GenerationRequest, text: CachedText) -> TokenStep:
        """Return the step for these settings: the last one where they are the same, since it may hold a CUDA graph."""
        settings = (replace(request.sampling, seed=None), request.ignore_end, _is_constrained(request))
        if self._step is None or settings != self._step_settings:
            self._step = self._new_step(request, text.cache)
            self._step_settings = settings
        return self._step

    def _new_step(self, request: GenerationRequest, cache: TextCache, num_rows: int = 1) -> TokenStep:
        constrained = _is_constrained(request)
        banned = (*self._empty_ids, *(self._end_ids if request.ignore_end and not constrained else ()))
        tokenizer = self._prompts.tokenizer
        vocab_size = self._model.vocab_size
        rules = token_rules(request.sampling, tokenizer.encode, tokenizer.pieces.__getitem__, vocab_size, banned)
        return TokenStep(self._model, cache, request.sampling, rules, constrained, num_rows)

    def _pin(self, request: GenerationRequest) -> None:
        """Where the system prompt is to stay in view, make sinks of it: that takes a cache of another size."""
        if not self._pins_system_prompt:
            return
        sinks = max(FEWEST_PINNED_TOKENS, self._prompts.num_pinned(request.messages))
        if sinks != self._info.sinks:
            self._drop_cache()
            self._info = replace(self._info, sinks=sinks)

    def _open_text(self) -> CachedText:
        """Return the text in the cache; set up an empty one if there is none.

        Raises:
            BadRequestError: the memory that is free does not suffice.
        """
        if self._text is None:
            assert self._new_cache is not None, "the backend is closed"
            self._text = CachedText(self._new_cache(self._info.sinks, 1), _SNAPSHOT_BUDGET_BYTES)
        return self._text

    def _drop_cache(self) -> None:
        self._text = self._step = self._step_settings = None
        memory.give_back(self._device)

    def _tell_of_refusal(self, step: TokenStep) -> None:
        """Say once that steps run slower than this device could."""
        notice = _RUNS_EAGERLY.format(reason=step.refused)
        if step.refused and notice not in self._info.notices:
            self._info = replace(self._info, notices=(*self._info.notices, notice))

    @property
    def _model(self) -> TextModel:
        assert self._loaded is not None, "the backend is closed"
        return self._loaded

    @property
    def _chunk_tokens(self) -> int:
        """Prompt tokens fed at a time: as many as take some tenths of a second, so that cancelling is prompt."""
        tokens = _CHUNK_WEIGHT_BYTES[self._device.type] // max(1, self._info.weights_bytes)
        return max(_FEWEST_CHUNK_TOKENS, min(_MOST_CHUNK_TOKENS[self._device.type], tokens))


def _is_constrained(request: GenerationRequest) -> bool:
    return request.json_schema is not None or request.grammar is not None


def _constrain(step: TokenStep, reply: Reply) -> None:
    allowed_V = reply.allowed
    if allowed_V is not None:
        step.allow(torch.from_numpy(allowed_V))


def _checked(token: int) -> int:
    if token == INVALID_TOKEN:
        raise RingsideError(NOT_A_NUMBER, NOT_A_NUMBER_HINT)
    return token
