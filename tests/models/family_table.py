"""Print what every family is held to, as the Markdown tables of the README: `python -m tests.models.family_table`.

Every number is measured on the spot, on tiny random models with the functions that the tests call, in about a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import transformers

from models.config import ModelConfig
from tests.models.converted_models import GGUF_FORMS
from tests.models.family_checks import (
    NUM_HALF_TOKENS,
    NUM_TOKENS,
    FullPrecision,
    HalfPrecision,
    compat_error,
    full_precision,
    gguf_error,
    half_precision,
)
from tests.models.stock_folders import STOCK_FAMILIES, stock_model
from tests.models.test_decoder import PARTITIONS
from tests.models.tiny_models import FAMILIES, WINDOW, tiny_model

_HEADER = (
    "Family",
    "Layers",
    "float32",
    "bfloat16",
    "float16",
    "GGUF and safetensors",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write the tables to this file as well")
    parser.add_argument("--families", nargs="*", default=[*FAMILIES, *STOCK_FAMILIES])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    lines = []
    for line in tables(arguments.families):
        print(line, flush=True)
        lines.append(line)
    if arguments.output is not None:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tables(families: Sequence[str]) -> Iterator[str]:
    """Yield the lines as they are measured."""
    yield (
        f"Tiny random models, window {WINDOW}, {NUM_TOKENS} tokens cut in {len(PARTITIONS)} ways (one piece to single "
        f"steps), against transformers {transformers.__version__} without a cache, PyTorch {torch.__version__}. "
        "float32, GGUF: largest difference of any logit. 16 bits: mean difference from float32 over the spread of the "
        f"logits, {NUM_HALF_TOKENS} tokens; in brackets, transformers' own. Percentages behind a comma: positions with "
        "the same most likely token."
    )
    yield ""
    yield from _row_lines([_HEADER])
    for family in (name for name in FAMILIES if name in families):
        yield _line(_row(family))
    yield ""
    yield "Through transformers, on our cache:"
    yield ""
    yield from _row_lines([("Family", "Layers", "float32")])
    for family in (name for name in STOCK_FAMILIES if name in families):
        yield _line((family, _stock_layers(family), _error(compat_error(family))))


def _row(family: str) -> tuple[str, ...]:
    bfloat16, float16 = (half_precision(family, dtype) for dtype in (torch.bfloat16, torch.float16))
    gguf = _error(gguf_error(family)) if family in GGUF_FORMS else "no GGUF"
    layers = _layers(tiny_model(family).config)
    return (family, layers, _in_32_bits(full_precision(family)), _in_16_bits(bfloat16), _in_16_bits(float16), gguf)


def _error(error: float) -> str:
    return f"{error:.0e}" if error else "0"


def _in_32_bits(found: FullPrecision) -> str:
    return f"{_error(found.error)}, {found.same_top:.0%}"


def _in_16_bits(found: HalfPrecision) -> str:
    return f"{found.error:.2%}, {found.same_top:.0%} ({found.stock_error:.2%}, {found.stock_same_top:.0%})"


def _layers(config: ModelConfig) -> str:
    return _counted(config.num_sliding_layers, config.num_full_layers)


def _stock_layers(family: str) -> str:
    from models.transformers_cache import RingCache

    cache = RingCache(stock_model(family).config)
    return _counted(len(cache.rings), len(cache.growing))


def _counted(num_sliding: int, num_full: int) -> str:
    parts = [f"{count} {kind}" for count, kind in ((num_sliding, "sliding"), (num_full, "full")) if count]
    return ", ".join(parts)


def _row_lines(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    for row in rows:
        yield _line(row)
        yield _line(("---",) * len(row))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
