"""One reply in the making: tokens in, text out, and when to stop. Nothing here grows with the reply."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from backends.draws import fresh_seed, uniform
from backends.events import FinishReason
from backends.reply_stops import PROMPT_END_TOKENS, named_control_tokens, reply_stops
from backends.requests import GenerationRequest
from models.constraint import Constraint
from models.detokenizer import StreamDecoder
from models.tokenizer import TextTokenizer


class Reply:
    """State of one reply.

    Bytes of a character that the end of a reply cuts are not shown: the reply that continues it takes them up.

    Args:
        request: sampling, stop strings and limits.
        prompt: token ids, those of a reply that is continued included.
        opening: mark of reasoning that the model's template ends a prompt with.

    Attributes:
        seed: given or drawn.
        num_tokens: drawn in this request, the end of text not counted.
    """

    def __init__(
        self,
        request: GenerationRequest,
        tokenizer: TextTokenizer,
        prompt: Sequence[int],
        constraint: Constraint | None = None,
        opening: str = "",
    ) -> None:
        self.seed = fresh_seed() if request.sampling.seed is None else request.sampling.seed
        self.num_tokens = 0
        self._num_earlier = _num_continued(request)
        self._max_tokens = request.max_new_tokens
        self._decoder = StreamDecoder(tokenizer, prompt)
        control = named_control_tokens(request.stop, tokenizer.encode, tokenizer.pieces.__getitem__, tokenizer.spelled)
        prompt_end = b"".join(map(tokenizer.spelled, prompt[-PROMPT_END_TOKENS:])).decode("utf-8", "replace")
        self._stops = reply_stops(request, opening, prompt_end, control)
        self._constraint = constraint

    @property
    def number(self) -> float:
        """The uniform number that draws the next token: the same whether or not the reply was stopped before."""
        return uniform(self.seed, self._num_earlier + self.num_tokens)

    @property
    def allowed(self) -> npt.NDArray[np.bool_] | None:
        """The tokens that may come next; None where all may."""
        return None if self._constraint is None else self._constraint.allowed()

    @property
    def end_reason(self) -> FinishReason | None:
        """Why the reply ends here, by a stop string or by length; None if it goes on."""
        if self._stops.matched:
            return "stop"
        return "length" if self._max_tokens is not None and self.num_tokens >= self._max_tokens else None

    def push(self, token: int) -> str:
        """Take in a drawn token; return the text that is certain now, which may be empty."""
        self.num_tokens += 1
        if self._constraint is not None:
            self._constraint.push(token)
        return self._stops.push(self._decoder.push(token), token)

    @property
    def is_settled(self) -> bool:
        """Whether all text of the tokens so far is out; see `TextChunk`."""
        return not self._stops.holds_text

    def flush(self) -> str:
        """Return the text held back as a possible stop string: the reply has ended."""
        return self._stops.flush()


def _num_continued(request: GenerationRequest) -> int:
    """Return how many tokens of the reply were drawn before; 0 if the request starts one."""
    last = request.messages[-1] if request.messages else None
    return last.num_drawn_tokens if last is not None and last.role == "assistant" else 0
