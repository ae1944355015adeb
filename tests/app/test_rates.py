"""Rates: what is told, and from when on."""

from __future__ import annotations

import pytest

from app.rates import LEAST_S, SmoothedRate


def test_tokens_that_come_at_once_are_no_speed() -> None:
    rate = SmoothedRate()
    rate.start(0.0)
    rate.advance(2, 2e-5)
    assert rate.smooth is None
    assert rate.now(2e-5) is None
    rate.advance(3, 2 * LEAST_S)
    assert rate.smooth == pytest.approx(5 / (2 * LEAST_S), rel=0.02)
