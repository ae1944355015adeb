"""One reply in the making: the next token drawn, its bytes turned into text, stop strings and limits watched.

Nothing here grows with the reply. A token's bytes go through an incremental UTF-8 decoder, so text is whole characters;
bytes of a character cut by the end of a reply wait for the reply that continues it.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from backends.draws import fresh_seed, uniform
from backends.events import FinishReason
from backends.llamacpp.library import Model
from backends.llamacpp.sampling import Sampler
from backends.repeats import KeptRuns
from backends.reply_stops import PROMPT_END_TOKENS, named_control_tokens, reply_stops
from backends.requests import GenerationRequest, Message
from backends.token_rules import token_rules
from models.constraint import Constraint

_PRIMING_TOKENS = 16
"""A character is at most four bytes, and tokens that give none are rare: more than enough to find its first byte."""


class Reply:
    """State of one reply.

    Args:
        request: sampling, stop strings and limits.
        prompt: token ids, those of a reply that is continued included; penalties look at them.
        end_ids: tokens that end a reply.
        opening: mark of reasoning that the model's template ends a prompt with.
        kept_runs: see `Sampler`.

    Attributes:
        seed: given or drawn.
        num_tokens: drawn in this request, the end of text not counted.
    """

    def __init__(
        self,
        model: Model,
        request: GenerationRequest,
        prompt: Sequence[int],
        end_ids: Sequence[int],
        constraint: Constraint | None = None,
        opening: str = "",
        kept_runs: KeptRuns | None = None,
    ) -> None:
        sampling = request.sampling
        earlier = continued_message(request)
        self.seed = fresh_seed() if sampling.seed is None else sampling.seed
        self.num_tokens = 0
        self._model = model
        self._max_tokens = request.max_new_tokens
        self._num_earlier = earlier.num_drawn_tokens if earlier else 0
        banned = (*model.unused_ids, *(end_ids if request.ignore_end and constraint is None else ()))
        rules = token_rules(sampling, model.encode, model.piece, model.vocab_size, banned, model.known_breakers)
        self._sampler = Sampler(sampling, model.vocab_size, prompt, rules, kept_runs)
        control = named_control_tokens(request.stop, model.encode, model.piece, model.name)
        prompt_end = b"".join(map(model.name, prompt[-PROMPT_END_TOKENS:])).decode("utf-8", "replace")
        self._stops = reply_stops(request, opening, prompt_end, control)
        self._constraint = constraint
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in _last_ids(earlier)[-_PRIMING_TOKENS:]:
            self._decoder.decode(model.piece(token))

    def draw(self, logits_V: npt.NDArray[np.float32]) -> int:
        """Return the next token, which may end the text; see `Sampler.draw`."""
        allowed_V = None if self._constraint is None else self._constraint.allowed()
        return self._sampler.draw(logits_V, uniform(self.seed, self._num_earlier + self.num_tokens), allowed_V)

    def push(self, token: int) -> str:
        """Take in a drawn token; return the text that is certain now, which may be empty."""
        self.num_tokens += 1
        self._sampler.push(token)
        if self._constraint is not None:
            self._constraint.push(token)
        return self._stops.push(self._decoder.decode(self._model.piece(token)), token)

    @property
    def is_settled(self) -> bool:
        """Whether all text of the tokens so far is out; see `TextChunk`."""
        return not self._stops.holds_text

    def flush(self) -> str:
        """Return the text held back as a possible stop string: the reply has ended."""
        return self._stops.flush()

    @property
    def end_reason(self) -> FinishReason | None:
        """Why the reply ends here, by a stop string or by length; None if it goes on."""
        if self._stops.matched:
            return "stop"
        return "length" if self._max_tokens is not None and self.num_tokens >= self._max_tokens else None


def continued_message(request: GenerationRequest) -> Message | None:
    """Return the reply that the request continues; None if it starts one."""
    last = request.messages[-1] if request.messages else None
    return last if last and last.role == "assistant" else None


def _last_ids(message: Message | None) -> tuple[int, ...]:
    """Return the ids a message ends with; none if it ends with typed text, which is whole characters."""
    pieces = message.known_pieces if message else None
    return pieces[-1] if pieces and not isinstance(pieces[-1], str) else ()
