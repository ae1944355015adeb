"""What keys and values in 8 bits cost a real model: KL and same-top-1 against the plain cache over a given text.

Run as `python -m models.kv_fidelity MODEL TEXT [--tokens 256]`; prints one line for each type.

Shape letters: T tokens, V vocabulary.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from backends.requests import CachePolicy, KVType
from models.decoder import Decoder
from models.kv_codes import CodedType, supports
from models.model_files import ModelFiles
from models.precision import choose_precision
from models.ring_cache import KVCache
from models.tokenizer import load_tokenizer
from models.weights import load_decoder

_CHUNK_TOKENS = 16  # the head runs for each of them: 16 MB of logits with a vocabulary of 262,144
_TYPES: tuple[CodedType, ...] = ("int8", "fp8")


@dataclass(frozen=True)
class Fidelity:
    """How far one set of next-token probabilities is from another.

    Attributes:
        mean_kl, largest_kl: of KL(plain || coded) over the tokens, in nats.
        same_top1: share of tokens after which both find the same one likeliest.
        loss_change: mean loss of the text's own next tokens, coded minus plain, in nats; NaN where there is no text.
        num_tokens: compared.
    """

    mean_kl: float
    largest_kl: float
    same_top1: float
    loss_change: float
    num_tokens: int


def compare_logits(plain_TV: Tensor, coded_TV: Tensor, next_T: Tensor | None = None) -> Fidelity:
    """Compare logits token by token; `next_T` are the tokens that really follow."""
    return _summary([_compared(plain_TV, coded_TV, next_T)])


@torch.inference_mode()
def compare_caches(
    decoder: Decoder, new_cache: Callable[[KVType], KVCache], kv_type: CodedType, tokens: Sequence[int]
) -> Fidelity:
    """Feed a text to a plain cache and to one of that type, in step, and compare what is predicted after each token."""
    plain, coded = new_cache("auto"), new_cache(kv_type)
    ids_1T = torch.tensor([list(tokens)], device=plain.device)

    def chunks() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for start in range(0, len(tokens) - 1, _CHUNK_TOKENS):
            end = min(start + _CHUNK_TOKENS, len(tokens) - 1)
            piece_1T, next_T = ids_1T[:, start:end], ids_1T[0, start + 1 : end + 1]
            yield _compared(decoder(piece_1T, plain, "all")[0], decoder(piece_1T, coded, "all")[0], next_T)

    return _summary(list(chunks()))


def _compared(plain_TV: Tensor, coded_TV: Tensor, next_T: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """KL, agreement and change of loss, of each token."""
    plain_TV, coded_TV = plain_TV.double().log_softmax(-1), coded_TV.double().log_softmax(-1)
    kl_T = (plain_TV.exp() * (plain_TV - coded_TV)).sum(-1)
    agrees_T = plain_TV.argmax(-1) == coded_TV.argmax(-1)
    if next_T is None:
        return kl_T, agrees_T, torch.full_like(kl_T, torch.nan)
    return kl_T, agrees_T, (plain_TV - coded_TV).gather(-1, next_T.unsqueeze(-1)).squeeze(-1)


def _summary(parts: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Fidelity:
    kl_T, agrees_T, change_T = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return Fidelity(
        float(kl_T.mean()), float(kl_T.max()), float(agrees_T.double().mean()), float(change_T.mean()), len(kl_T)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the fidelity of each type for a model on this machine's CPU."""
    parser = argparse.ArgumentParser(description="KL and same-top-1 of keys and values in 8 bits.")
    parser.add_argument("model", help="a GGUF file or a Hugging Face folder")
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--sinks", type=int, default=4)
    given = parser.parse_args(arguments)
    files, device = ModelFiles.open(given.model), torch.device("cpu")
    config, tokenizer = files.config(), load_tokenizer(files)
    precision = choose_precision("auto", files.weights.encodings, device)
    decoder, _ = load_decoder(files, config, precision, device)
    beginning = given.text.read_text("utf-8")[: 16 * given.tokens]
    first = [] if tokenizer.bos_id is None or not tokenizer.adds_bos else [tokenizer.bos_id]
    tokens = [*first, *tokenizer.encode(beginning)][: given.tokens + 1]

    def new_cache(kv_type: KVType) -> KVCache:
        return KVCache(config, CachePolicy.RING, given.window, given.sinks, dtype=precision.dtype, kv_type=kv_type)

    for kv_type in (each for each in _TYPES if supports(each, device)):
        found = compare_caches(decoder, new_cache, kv_type, tokens)
        print(
            f"{files.name}, {kv_type}, {found.num_tokens} tokens: mean KL {found.mean_kl:.2e}, largest "
            f"{found.largest_kl:.2e}, same top-1 {found.same_top1:.1%}, loss {found.loss_change:+.4f}"
        )


if __name__ == "__main__":
    main()
