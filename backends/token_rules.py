"""What a request says about tokens by their text, found in one model's vocabulary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from backends.errors import BadRequestError
from backends.requests import Sampling


@dataclass(frozen=True)
class TokenRules:
    """Token ids with a rule of their own.

    Attributes:
        biases: (id, added to its logit), each id once, in order; -inf is never drawn.
        breakers: tokens that end a repeat for DRY, in order.
    """

    biases: tuple[tuple[int, float], ...] = ()
    breakers: tuple[int, ...] = ()


NO_RULES = TokenRules()


def token_rules(
    sampling: Sampling,
    encode: Callable[[str], list[int]],
    piece: Callable[[int], bytes],
    vocab_size: int,
    banned: Iterable[int] = (),
    known_breakers: dict[tuple[str, ...], tuple[int, ...]] | None = None,
) -> TokenRules:
    """Look up what the settings name.

    Args:
        encode: text to ids.
        piece: bytes of a token.
        vocab_size: V, rows of the logits.
        banned: tokens never to be drawn.
        known_breakers: the vocabulary's, by their texts; what is not there is found and added. To find them takes a
            second at 262,144 tokens.

    Raises:
        BadRequestError: a logit bias names an id that the model does not have, or a text that no token spells.
    """
    biases: dict[int, float] = {}
    for token, bias in sampling.logit_bias:
        for token_id in (token,) if isinstance(token, int) else encode(token):
            if token_id >= vocab_size:
                raise BadRequestError(
                    f"The logit bias names token {token_id}, and this model's tokens end at {vocab_size - 1}.",
                    "Give a smaller id, or the token's text.",
                )
            biases[token_id] = biases.get(token_id, 0.0) + bias
    biases.update(dict.fromkeys(banned, -math.inf))
    breakers: tuple[int, ...] = ()
    if sampling.dry_multiplier:
        known = {} if known_breakers is None else known_breakers
        if sampling.dry_breakers not in known:
            known.clear()  # one set is enough: people rarely change them
            known[sampling.dry_breakers] = _breakers(sampling.dry_breakers, piece, vocab_size)
        breakers = known[sampling.dry_breakers]
    return TokenRules(tuple(sorted(biases.items())), breakers)


def _breakers(texts: tuple[str, ...], piece: Callable[[int], bytes], vocab_size: int) -> tuple[int, ...]:
    wanted = [text.encode() for text in texts]
    return tuple(each for each in range(vocab_size) if any(text in piece(each) for text in wanted)) if wanted else ()
