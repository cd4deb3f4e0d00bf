"""For the tests of the log readers: text in, what was read out."""

from __future__ import annotations

import math
from typing import Any

from stayfinite.core.series import RunSeries
from stayfinite.readers.logs import LogReader


def series_of(text: str | bytes, source: str = "train.log") -> list[RunSeries]:
    reader = LogReader(source)
    reader.feed(text)
    reader.close()
    return reader.series


def points_of(series: RunSeries) -> list[dict[str, Any]]:
    """Each point without what it says nothing of, and without its line."""
    found = []
    for point in series.points:
        fields = point._asdict()
        found.append(
            {name: value for name, value in fields.items() if value is not None and name not in {"line", "skipped"}}
        )
        if point.skipped:
            found[-1]["skipped"] = True
    return found


def same(found: Any, expected: Any) -> bool:
    """Equality in which NaN equals NaN."""
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(same(found[k], expected[k]) for k in expected)
        )
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return bool(found == expected)
