"""A curve in a fixed number of places."""

import math

from hypothesis import given
from hypothesis import strategies as st

from stayfinite.core.sketch import Sketch, Stroke, strokes_of


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(2, 16), st.integers(1, 20))
def test_every_value_is_in_exactly_one_place(values, places, width):
    sketch = Sketch(places)
    for value in values:
        sketch.add(value)
    kept = sketch._places
    assert len(kept) <= places
    assert sum(place.finite for place in kept) == len(values)
    assert math.isclose(sum(place.total for place in kept), math.fsum(values), rel_tol=1e-6, abs_tol=1e-3)
    assert len(sketch.strokes(width)) <= width


def test_places_stay_even_however_long_the_run():
    sketch = Sketch(8)
    for number in range(1_000):
        sketch.add(float(number))
    means = [stroke.mean for stroke in sketch.strokes(8)]
    assert means == sorted(means)
    assert means[0] < 130
    assert means[-1] > 900


def test_one_bad_value_among_many_is_never_lost_and_never_averaged():
    sketch = Sketch(4)
    for number in range(1_000):
        sketch.add(math.nan if number == 500 else 1.0)
    strokes = sketch.strokes(4)
    assert [stroke.bad for stroke in strokes].count(True) == 1
    assert all(stroke.mean == 1.0 for stroke in strokes)


def test_nothing_but_bad_values_has_no_mean():
    assert strokes_of([math.nan, math.inf], 1) == [Stroke(None, True)]
    assert strokes_of([], 5) == []
    assert strokes_of([1e308, 1e308], 1) == [Stroke(None, False)]
