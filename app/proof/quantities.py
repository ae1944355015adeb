"""Numbers as a person reads them: bytes, seconds, counts and rates, with their units."""

from __future__ import annotations


def bytes_text(num_bytes: float) -> str:
    """Return bytes in binary units with three digits: 1536 -> "1.50 KiB"."""
    value, sign = abs(num_bytes), "-" if num_bytes < 0 else ""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 999.5 or unit == "TiB":
            break
        value /= 1024
    return f"{sign}{value:.0f} B" if unit == "B" else f"{sign}{_three_digits(value)} {unit}"


def decimal_bytes_text(num_bytes: float) -> str:
    """Return bytes in decimal units, as the page writes them (`assets/format.js`): 1536 -> "1.5 kB"."""
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """Return a duration with three digits: 0.00123 -> "1.23 ms"."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def tokens_text(num_tokens: float) -> str:
    """Return a token count with separators: 20000 -> "20,000"."""
    return f"{num_tokens:,.0f}"


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{decimals}f}"
