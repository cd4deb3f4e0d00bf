"""A curve stays small however long it grows, and loses neither an extreme nor a value that is not finite."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from stayfinite.core.curve import Curve, Spans

numbers = st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), max_size=400)


@given(numbers, st.integers(2, 20))
def test_the_extremes_and_both_ends_are_always_among_the_points(values, most):
    curve = Curve(most=most)
    for step, value in enumerate(values):
        curve.add(step, value)
    finite = [(step, value) for step, value in enumerate(values) if math.isfinite(value)]
    points = curve.points()
    assert len(points) <= 2 * most + 2
    assert set(points) <= {(float(step), value) for step, value in finite}
    assert [step for step, _ in points] == sorted(step for step, _ in points)
    if finite:
        assert (points[0], points[-1]) == (finite[0], finite[-1])
        assert min(value for _, value in points) == min(value for _, value in finite) == curve.low
        assert max(value for _, value in points) == max(value for _, value in finite) == curve.high
    assert sum(span.count for span in curve.bad) == len(values) - len(finite)


def test_every_stretch_keeps_its_own_extremes():
    curve = Curve(most=400)
    spikes = {step: 50.0 + step for step in range(500, 100_000, 1000)}
    for step in range(100_000):
        curve.add(step, spikes.get(step, step % 3))
    kept = dict(curve.points())
    assert all(kept.get(step) == height for step, height in spikes.items())


def test_a_short_curve_is_kept_as_it_is():
    curve = Curve()
    pairs = [(step, float(step * 37 % 11)) for step in range(1000)]
    for step, value in pairs:
        curve.add(step, value)
    assert curve.points() == pairs


def test_a_resumed_run_keeps_the_order_in_which_it_came():
    curve = Curve()
    for step in (1, 2, 3, 2, 3, 4):
        curve.add(step, step * 0.5)
    assert [step for step, _ in curve.points()] == [1, 2, 3, 2, 3, 4]


def test_values_that_are_not_finite_are_told_apart_and_neighbours_are_one():
    curve = Curve()
    for step, value in enumerate([1.0, math.nan, math.nan, 2.0, math.inf, -math.inf, math.nan]):
        curve.add(step, value)
    assert [(s.kind, s.first, s.last, s.count) for s in curve.bad] == [
        ("NaN", 1, 2, 2), ("inf", 4, 4, 1), ("-inf", 5, 5, 1), ("NaN", 6, 6, 1),
    ]  # fmt: skip


def test_too_many_marks_become_fewer_and_none_is_uncounted():
    spans = Spans(most=50)
    for step in range(10_000):
        spans.add("veto" if step % 3 else "checkpoint", step, text=f"at {step}")
    assert len(spans) <= 50
    assert sum(span.count for span in spans) == spans.total == 10_000
    assert min(span.first for span in spans) == 0
    assert max(span.last for span in spans) == 9_999


def test_kinds_that_are_all_different_stay_within_their_bound():
    spans = Spans(most=8)
    for step in range(100):
        spans.add(f"kind {step}", step)
    assert len(spans) <= 8
