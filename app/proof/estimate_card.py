"""The estimate as the page shows it: every window of its slider worked out at once, so that sliding asks nobody.

All numbers are `models.sizing`'s; the page only chooses among them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from app.proof.advice import advice
from app.proof.estimate import Outlook, Surroundings, default_windows, kv_curve, outlook
from app.proof.quantities import decimal_bytes_text
from backends.requests import CachePolicy
from models.config import ModelConfig
from models.estimate_warnings import warnings_for
from models.model_files import ModelFiles

_FEWEST_TOKENS, _MOST_TOKENS, _NUM_LENGTHS = 100, 1_000_000, 61


@dataclass(frozen=True)
class Curve:
    """Bytes of keys and values at the card's lengths."""

    policy: str
    num_bytes: tuple[int, ...]


@dataclass(frozen=True)
class WindowChoice:
    """One stop of the slider.

    Attributes:
        kv_bytes: of the ring, which stays there.
        total_bytes: of the process, libraries included where they were measured.
        even_at_tokens: length at which a cache that keeps everything is as large.
        in_force: W as the backend would run it; `sentences` say why it is another than `window`.
        in_table: whether the table of windows has it too.
        curves: of the ring and, where some layers slide and others do not, "as trained".
        sentences: warnings and advice at this window, the most important first.
    """

    window: int
    kv_bytes: int
    total_bytes: int
    fits: bool | None
    even_at_tokens: int
    in_force: int
    in_table: bool
    curves: tuple[Curve, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class EstimateCard:
    """Everything on the card.

    Attributes:
        outlook: at the chosen window.
        tokens: lengths of every curve.
        full: the cache that keeps everything.
        windows: stops of the slider, the chosen window among them.
    """

    outlook: Outlook
    tokens: tuple[int, ...]
    full: Curve
    windows: tuple[WindowChoice, ...]

    def as_json(self) -> dict[str, object]:
        """Return it as the page takes it."""
        found = asdict(self)
        seen = self.outlook
        found["outlook"] |= {"total_bytes": seen.total_bytes, "request": None}
        return {**found, "window": seen.request.window, "policy": seen.request.policy.value}


def estimate_card(files: ModelFiles, around: Surroundings, seen: Outlook) -> EstimateCard:
    """Work out every window for what `seen` says of the chosen one."""
    config, request = files.config(), seen.request
    table = default_windows(config, request.window)
    stops = sorted({*table, *(window * 3 // 2 for window in table[:-1] if window.bit_count() == 1)})
    rows = outlook(files, request, around, stops).rows
    tokens = lengths()
    encodings = tuple(files.weights.encodings)

    def curve(policy: CachePolicy, window: int) -> Curve:
        load = replace(request, policy=policy, window=window)
        return Curve(policy.value, tuple(kv_curve(config, load, tokens, around.on_gpu, encodings)))

    policies = [CachePolicy.RING]
    if config.num_sliding_layers and config.num_full_layers:
        policies.append(CachePolicy.AS_TRAINED)
    windows = tuple(
        WindowChoice(
            **asdict(row),
            in_table=row.window in table,
            curves=tuple(curve(policy, row.window) for policy in policies),
            sentences=_sentences(config, seen, around, row.window, row.total_bytes, row.fits),
        )
        for row in rows
    )
    return EstimateCard(seen, tokens, curve(CachePolicy.FULL, request.window), windows)


def lengths() -> tuple[int, ...]:
    """Return the lengths of the curves, evenly spaced on a logarithmic axis."""
    ratio = _MOST_TOKENS / _FEWEST_TOKENS
    return tuple(round(_FEWEST_TOKENS * ratio ** (step / (_NUM_LENGTHS - 1))) for step in range(_NUM_LENGTHS))


def _sentences(
    config: ModelConfig, seen: Outlook, around: Surroundings, window: int, total_bytes: int, fits: bool | None
) -> tuple[str, ...]:
    request = replace(seen.request, window=window)
    too_small = around.free_bytes if fits is False else None
    warnings = warnings_for(config, request, total_bytes, too_small, around.has_chat_template)
    weights, element = seen.weights_bytes, seen.element_bytes
    return (*warnings, *advice(config, request, weights, element, around.expected_tokens, decimal_bytes_text))
