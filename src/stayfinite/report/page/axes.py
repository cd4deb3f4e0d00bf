"""Alternative x axes: time since the start, and tokens seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from stayfinite.core.curve import Curve
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.runs.events import SIGNAL
from stayfinite.report.page.plain import short, whole

TIME = lazy_regex(
    r"(?i)^(.*/)?_?(elapsed|elapsed[_ ]time|time[_ ]elapsed|wall[_ ]?(clock|time)|runtime|total[_ ]time)(_s)?$"
)
TOKENS = lazy_regex(
    r"(?i)^(.*/)?((num|total|consumed|cumulative|seen)_)?(input_)?tokens(_(seen|so_far|consumed|total))?$"
)

MOST = 200
"""Points kept per axis, linearly interpolated between."""

Axes = dict[str, list[list[float | int]]]
"""[step, position] pairs per axis, both increasing."""


def run_axes(times: Iterable[tuple[float, float]], curves: Mapping[str, Curve]) -> Axes:
    """Axes of a guarded run, from its event times and signals."""
    signals = {name.removeprefix(SIGNAL): curve.points() for name, curve in curves.items() if name.startswith(SIGNAL)}
    axes = log_axes(signals)
    if found := _rising(times):
        axes["time"] = found
    return axes


def log_axes(metrics: Mapping[str, Iterable[tuple[float, float]]]) -> Axes:
    """Axes of a log, from nondecreasing metrics that count time or tokens."""
    axes: Axes = {}
    for axis, names in (("time", TIME), ("tokens", TOKENS)):
        for name, points in metrics.items():
            if names.search(name) and (found := _rising(points)):
                axes[axis] = found
                break
    return axes


def _rising(points: Iterable[tuple[float, float]]) -> list[list[float | int]]:
    """[step, position] pairs, each step once; empty if positions decrease or do not change."""
    places = dict(points)
    pairs: Sequence[tuple[float, float]] = sorted(places.items())
    if len(pairs) < 2 or any(later[1] < earlier[1] for earlier, later in pairwise(pairs)):
        return []
    if pairs[-1][1] <= pairs[0][1]:
        return []
    every = -(-len(pairs) // MOST)
    kept = [*pairs[:-1:every], pairs[-1]]
    return [[whole(step), short(place)] for step, place in kept]
