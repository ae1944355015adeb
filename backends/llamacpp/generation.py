"""The backend: prefill in small batches, then one token at a time for as long as the request says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from backends.contract import Cancelled, LoadedModel
from backends.errors import BadRequestError, RingsideError
from backends.events import Event, Finished, FinishReason, MemoryFigures, PrefillProgress, TextChunk
from backends.llamacpp.context import BATCH_TOKENS, Context
from backends.llamacpp.library import Model
from backends.llamacpp.memory import ThrottledMeasure, device_bytes
from backends.llamacpp.plan import ContextPlan, plan_context
from backends.llamacpp.prompting import Prompts
from backends.llamacpp.reply import Reply
from backends.llamacpp.running_states import INTERVAL_TOKENS, ends_of_batches
from backends.llamacpp.saved_state import identity_in, read_state, write_state
from backends.llamacpp.scoring import token_losses
from backends.llamacpp.sequence import TokenSequence
from backends.repeats import KeptRuns
from backends.requests import CachePolicy, GenerationRequest, LoadRequest, Message
from models.constraint import Constraint, Constraints

FEWEST_PINNED_TOKENS = 4
"""Pinned when the system prompt is to be and there is none: full layers collapse once the first token is gone."""


class Parts(NamedTuple):
    """What a backend is made of, for `examination`."""

    model: Model
    context: Context
    sequence: TokenSequence
    prompts: Prompts


class LlamaCppBackend:
    """One GGUF model in llama.cpp; see `backends.contract.Backend`.

    Args:
        model: owned from here on, once the constructor has returned.
        request: policy, window and sinks.
        prompts: turns chats into token ids.
        info: what was loaded.
        num_threads: CPU threads.
        identity: what a saved state of this context belongs to, beside what `info` says; None where none is kept.

    Raises:
        OutOfMemoryError: the context does not fit.
    """

    def __init__(
        self,
        model: Model,
        request: LoadRequest,
        prompts: Prompts,
        info: LoadedModel,
        num_threads: int,
        identity: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._request = request
        self._prompts = prompts
        self._info = info
        self._identity = dict(identity or {})
        self._num_threads = num_threads
        self._constraints: Constraints | None = None
        self._kept_runs = KeptRuns()
        self._open_context(self._plan(info.sinks))

    @property
    def info(self) -> LoadedModel:
        return self._info

    @property
    def parts(self) -> Parts:
        return Parts(self._model, self._context, self._sequence, self._prompts)

    def memory(self) -> MemoryFigures:
        num_fed = self._sequence.num_fed
        capacity, filled = self._window_fill()
        full_bytes = num_fed * self._context.bytes_per_token
        return MemoryFigures(
            kv_held_bytes=min(self._held_bytes.value(), full_bytes),  # the library counts some bookkeeping in
            kv_allocated_bytes=self._context.allocated_bytes,
            kv_full_bytes=full_bytes,
            position_tokens=num_fed,
            window_filled_tokens=filled,
            window_tokens=capacity,
            weights_bytes=self._info.weights_bytes,
            window=self._info.window if capacity else 0,
            asked_window=self._info.asked_window,
            device_allocated_bytes=self._device_bytes,
        )

    def close(self) -> None:
        self._context.close()
        self._model.close()

    def generate(self, request: GenerationRequest, cancelled: Cancelled) -> Iterator[Event]:
        prompt = self._prompt(request.messages, request.raw)
        end_ids = self._prompts.end_ids
        constraint, opening = self._constraint(request), self._info.reasoning_opening
        reply = Reply(self._model, request, prompt, end_ids, constraint, opening, self._kept_runs)
        yield from self._prefill(request, prompt, cancelled)
        reason = self._end_reason(reply, cancelled)
        while reason is None:
            token = self._draw(reply)
            if token in end_ids:
                reason = "stop"
                break
            yield TextChunk(reply.push(token), (token,), reply.is_settled)
            reason = self._end_reason(reply, cancelled)
            if reason is None:  # the last token of a reply is fed by the reply that follows
                self._sequence.feed((token,), want_logits=True)
        if rest := reply.flush():
            yield TextChunk(rest, ())
        self._held_bytes.value(fresh=True)
        yield Finished(reply.end_reason or reason, reply.seed, len(prompt), reply.num_tokens)

    def token_losses(self, text: str, cancelled: Cancelled) -> Iterator[float]:
        """See `backends.contract.ScoresText`; what was in the cache is forgotten."""
        return token_losses(self._context, self._sequence, self._prompts.plain_ids(text), cancelled)

    def _constraint(self, request: GenerationRequest) -> Constraint | None:
        model = self._model
        if self._constraints is None and (request.json_schema is not None or request.grammar is not None):
            self._constraints = Constraints(model.encode, model.piece, model.vocab_size, self._prompts.end_ids)
        return None if self._constraints is None else self._constraints.open(request)

    def piece(self, token_id: int) -> bytes:
        """See `backends.contract.SpellsTokens`."""
        return self._model.name(token_id)

    def save_state(self, path: str, budget_bytes: int) -> int:
        """See `backends.contract.KeepsState`."""
        if not self._identity or not self._sequence.num_fed or self._held_bytes.value(fresh=True) > budget_bytes:
            return 0
        sequence, state = self._sequence, self._context.state()
        return write_state(path, sequence.fed, sequence.place(), state, self._state_identity())

    def load_state(self, path: str) -> int:
        """See `backends.contract.KeepsState`; what was in the cache is forgotten."""
        if self._request.sinks is None and (sinks := identity_in(path).get("sinks", "")).isdecimal():
            self._pin(int(sinks))  # how many it takes to pin a chat's system prompt is not known before its request
        fed, place, state = read_state(path, self._state_identity())
        self._sequence.clear()
        if not self._context.set_state(state):
            raise BadRequestError(f"llama.cpp does not take the saved state {path}.", "The text is read anew.")
        self._sequence.stand_at(fed, place)
        return len(fed)

    def _state_identity(self) -> dict[str, str]:
        info = self._info
        in_force = {"policy": info.policy.value, "window": str(info.window), "sinks": str(info.sinks)}
        return {**self._identity, **in_force, "cells": str(self._context.num_cells)}

    def _prompt(self, messages: Sequence[Message], raw: bool) -> list[int]:
        """Return the prompt's ids, and make sure that the context holds what they pin."""
        prompt = self._prompts.ids(messages, raw)
        if not prompt:
            raise BadRequestError(
                "The prompt is empty, and this model has no token to begin a text with.", "Write something."
            )
        if self._request.sinks is None:
            self._pin(max(FEWEST_PINNED_TOKENS, self._prompts.num_pinned(messages)))
        if not self._model.can_shift and len(prompt) >= self._context.num_cells:
            raise BadRequestError(
                f"The prompt of {len(prompt):,} tokens does not fit the context of {self._context.num_cells:,}, and "
                "this kind of model cannot drop its oldest tokens.",
                "Shorten the chat, or load the model with a larger window.",
            )
        return prompt

    def _prefill(
        self, request: GenerationRequest, prompt: Sequence[int], cancelled: Cancelled
    ) -> Iterator[PrefillProgress]:
        num_reused = num_done = self._sequence.take_up(prompt)
        self._held_bytes.value(fresh=True)
        yield PrefillProgress(num_done, len(prompt), num_reused, tuple(prompt))
        ends = self._ends_of_batches(request, len(prompt), num_reused)
        while num_done < len(prompt) and not cancelled():
            self._sequence.make_room()
            end = next(end for end in ends if end > num_done)
            batch = prompt[num_done : min(end, num_done + BATCH_TOKENS, num_done + self._sequence.room)]
            num_done += len(batch)
            self._sequence.feed(batch, want_logits=num_done == len(prompt))
            self._sequence.keep_state(turn_ends=num_done in ends[:-1])
            yield PrefillProgress(num_done, len(prompt), num_reused)

    def _ends_of_batches(self, request: GenerationRequest, num_tokens: int, num_reused: int) -> tuple[int, ...]:
        """Return after how many tokens of the prompt a batch ends, at the latest."""
        if not self._context.has_running_state:
            return (num_tokens,)
        reads_history = num_tokens - num_reused > INTERVAL_TOKENS and not request.raw
        return ends_of_batches(num_tokens, self._prompts.num_before_last(request.messages) if reads_history else 0)

    def _draw(self, reply: Reply) -> int:
        try:
            return reply.draw(self._context.logits())
        except RingsideError:
            self._sequence.clear()  # what led here must not be taken up again
            raise

    def _end_reason(self, reply: Reply, cancelled: Cancelled) -> FinishReason | None:
        if reason := reply.end_reason:
            return reason
        if cancelled():
            return "cancelled"
        return None if self._sequence.room or self._model.can_shift else "length"

    def _pin(self, sinks: int) -> None:
        """Change how many first tokens stay, in a context of another size where they need one."""
        if sinks == self._sequence.sinks:
            return
        plan = self._plan(sinks)
        if plan.num_cells != self._context.num_cells:
            self._context.close()
            self._open_context(plan)
        self._sequence.sinks = sinks
        self._info = replace(self._info, sinks=sinks)

    def _plan(self, sinks: int) -> ContextPlan:
        request = self._request
        return plan_context(
            request.policy, request.window, sinks, self._model.sliding_window, request.growing_context_tokens
        )

    def _open_context(self, plan: ContextPlan) -> None:
        self._context = context = Context(self._model, plan, self._num_threads, self._request.kv_type)
        self._sequence = TokenSequence(context, plan, self._model.sliding_window)
        self._sequence.sinks = self._info.sinks
        self._held_bytes = ThrottledMeasure(context.held_bytes)
        num_bytes = device_bytes([*self._model.load_lines, *context.log_lines])
        self._device_bytes = num_bytes or None

    def _window_fill(self) -> tuple[int, int]:
        """Return the capacity of a bounded layer and how much of it is in use, in tokens; (0, 0) if none is bounded."""
        if self._request.policy is CachePolicy.FULL:
            return 0, 0
        full_layers_bounded = self._request.policy is CachePolicy.RING and self._context.has_full_layers
        capacity = self._context.num_cells if full_layers_bounded else self._model.sliding_window
        return capacity, min(capacity, self._sequence.num_cells)
