"""Signals before the loss: a planted rise is told once, and what only looks like one is not."""

from __future__ import annotations

import pytest

from stayfinite.core.early_signs import ACTIVATION, ATTENTION, ROUTER, UPDATE, EarlySigns


def told(signal: str, values: list[float]) -> list[int]:
    """The samples, counted from 0, at which something was said."""
    signs = EarlySigns()
    return [number for number, value in enumerate(values) if signs.take(number, {(signal, "layer"): value})]


STEADY = {ATTENTION: 20.0, ACTIVATION: 300.0, ROUTER: 0.2, UPDATE: 0.004}


@pytest.mark.parametrize(("signal", "high"), [(ATTENTION, 200.0), (ACTIVATION, 9e3), (ROUTER, 0.9), (UPDATE, 0.08)])
def test_a_rise_that_stays_is_told_once_and_again_after_it_was_gone(signal, high):
    calm = [STEADY[signal]] * 20
    assert told(signal, calm + [high] * 5) == [21]
    assert told(signal, calm + [high] * 5 + calm + [high] * 3) == [21, 46]
    assert told(signal, [*calm, high, *calm]) == [], "one rare batch"
    assert told(signal, [high] * 40) == [], "its own usual level"


@pytest.mark.parametrize(
    ("signal", "values"),
    [
        (ATTENTION, [5.0 + 4 * step for step in range(60)]),  # grows evenly over the whole run
        (ATTENTION, [0.1] * 16 + [30.0] * 20),  # many times the usual, and still small
        (ATTENTION, [100 * (1 - 0.7**step) for step in range(40)]),  # rises from its initialization, and stays
        (ACTIVATION, [400.0 * step**0.5 for step in range(60)]),
        (ROUTER, [0.7, 0.75, 0.65] * 12),  # unbalanced from the start
        (UPDATE, [1e-5 * step for step in range(40)]),  # a warm-up
        (UPDATE, ([0.02] * 10 + [0.0005] * 10) * 3),  # warm restarts
    ],
)
def test_what_grows_by_design_is_left_alone(signal, values):
    assert told(signal, values) == []


def test_slow_exponential_growth_is_told_though_no_sample_stands_out():
    assert told(ATTENTION, [10 * 1.08**step for step in range(60)])


def test_places_that_rise_together_are_one_sign_and_the_worst_is_named():
    signs = EarlySigns()
    for step in range(20):
        assert not signs.take(step, {(ATTENTION, f"layers.{layer}"): 20.0 for layer in range(4)})
    rise = {(ATTENTION, f"layers.{layer}"): 100.0 * (layer + 1) for layer in range(4)} | {(ACTIVATION, "x"): 1.0}
    assert signs.take(20, rise) == []
    (sign,) = signs.take(21, rise)
    assert (sign.place, sign.value, sign.usual, sign.places) == ("layers.3", 400.0, 20.0, 4)
    assert str(sign).startswith("largest attention logit 400 in layers.3 and 3 more (median 20). Training continues.")
