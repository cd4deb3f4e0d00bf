"""Gigabytes in constant memory: what is kept of a long run, and that nothing that matters is lost."""

from __future__ import annotations

import gzip
import math
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.logs.reading_text import same
from stayfinite.core import series as series_module
from stayfinite.core.series import MOST_METRICS, MOST_POINTS, MOST_VALUES, Point, RunSeries, Track
from stayfinite.readers.logs import LogReader
from stayfinite.readers.logs.opening import UnreadableLog, read_log


def test_a_point_comes_back_as_it_was_added() -> None:
    series = RunSeries("train.log")
    series.add(3, 1.0, math.nan, -math.inf, 0.0, 8.0, 0.5, 100.0, True)
    series.add(4, loss=-math.inf)
    first, second = series.points
    assert same(
        [getattr(first, name) for name in Point._fields], [3, 1.0, math.nan, -math.inf, 0.0, 8.0, 0.5, 100.0, True]
    )
    assert second == Point(4, loss=-math.inf)
    assert first.bad
    assert second.bad


def test_a_column_has_steps_or_ordinals() -> None:
    series = RunSeries("train.log")
    series.add(1, loss=2.5)
    series.add(2, grad_norm=1.5)
    series.add(3, step=70.0, loss=1.5)
    assert series.column("loss") == [(0.0, 2.5, 1), (70.0, 1.5, 3)]
    assert series.column("grad_norm") == [(1.0, 1.5, 2)]


def test_a_long_series_is_thinned_evenly_and_keeps_its_ends_and_turns() -> None:
    series = RunSeries("train.log")
    count, bad = 5 * MOST_POINTS, 3 * MOST_POINTS + 77
    lines = list(range(count))
    losses: list[float | None] = [1.0] * count
    losses[bad] = math.nan
    for begin in range(0, count, 1000):
        end = begin + 1000
        chosen: dict[str, list[float | None]] = {
            "loss": losses[begin:end],
            "step": [float(i) for i in lines[begin:end]],
        }
        series.extend(lines[begin:end], chosen)
    kept = [point.step for point in series.points]
    assert len(series) == len(kept) <= MOST_POINTS
    assert series.points_seen == count
    assert kept[0] == 0.0
    assert kept[-1] == float(count - 1)
    assert {float(bad), float(bad + 1)} <= set(kept)
    gaps = {second - first for first, second in pairwise(kept) if first is not None and second is not None}
    assert max(gaps) <= 8


def test_a_run_that_turns_at_every_point_stays_bounded() -> None:
    series = RunSeries("train.log")
    for number in range(MOST_POINTS * 2):
        series.add(number, loss=math.nan if number % 2 else 1.0, skipped=number % 3 == 0)
    assert len(series) <= MOST_POINTS + 1


@given(
    st.lists(st.tuples(st.sampled_from([1.0, 2.0, math.nan, math.inf, None]), st.booleans()), max_size=120), st.data()
)
@settings(max_examples=60, deadline=None)
def test_many_at_once_are_the_same_as_one_by_one(rows: list[tuple[float | None, bool]], data: st.DataObject) -> None:
    most, series_module.MOST_POINTS = series_module.MOST_POINTS, 16
    try:
        one, many = RunSeries("a"), RunSeries("a")
        for line, (loss, skipped) in enumerate(rows):
            one.add(line, float(line), loss, skipped=skipped)
        place = 0
        while place < len(rows):
            size = data.draw(st.integers(1, 40))
            part = rows[place : place + size]
            lines = list(range(place, place + len(part)))
            many.extend(
                lines, {"loss": [row[0] for row in part], "step": [float(i) for i in lines]}, [row[1] for row in part]
            )
            place += size
        assert repr(list(one.points)) == repr(list(many.points))
        assert one.column("loss") == many.column("loss") or any(row[0] != row[0] for row in rows)
    finally:
        series_module.MOST_POINTS = most


@given(st.lists(st.sampled_from([1.0, math.nan, None]), max_size=60), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_a_metric_is_the_same_in_parts_and_at_once(values: list[float | None], size: int) -> None:
    one, many = Track(), Track()
    for line, value in enumerate(values):
        if value is not None:
            one.add(None, value, line)
    for place in range(0, len(values), size):
        part = values[place : place + size]
        many.extend([None] * len(part), part, list(range(place, place + len(part))))
    assert repr(one) == repr(many)


def test_a_metric_is_bounded_and_shows_where_it_turned() -> None:
    track = Track()
    for number in range(10 * MOST_VALUES):
        track.add(float(number), math.nan if number == 30_001 else 1.0, number)
    assert len(track.values) <= MOST_VALUES
    assert 30_001.0 in track.steps


def test_memory_does_not_grow_with_the_log() -> None:
    reader = LogReader("train.log")
    block = "".join(
        f"[rank{i % 2}]: step {i} loss 2.{i} acc: 0.{i}\nworker {i} is done\nodd {chr(97 + i % 26) * (i % 60)}\n"
        for i in range(2000)
    ).encode()
    for _ in range(3):
        reader.feed(block)
    tracemalloc.start()
    for _ in range(3):
        reader.feed(block)
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 4 << 20
    assert reader.series[0].points_seen == 6_000


def test_a_log_that_makes_up_names_keeps_the_first_and_counts_the_rest() -> None:
    reader = LogReader("train.log")
    for step in range(200):
        names = ", ".join(f"'m{step}_{number}': 1.0" for number in range(50))
        reader.feed(f"{{{names}, 'loss': 1.0, 'step': {step}}}\n")
    reader.close()
    (series,) = reader.series
    assert len(series.metrics) == MOST_METRICS
    assert series.metrics_left_out >= 200 * 50 - MOST_METRICS
    assert series.points_seen == 200


def test_a_log_that_is_packed_again_and_again_is_refused_in_words(tmp_path: Path) -> None:
    data = b"step 1 loss 2.0\n" * 10
    for times in range(1, 1001):
        data = gzip.compress(data, 1)
        if times == 2:
            (tmp_path / "twice.log.gz").write_bytes(data)
    (tmp_path / "often.log.gz").write_bytes(data)
    assert read_log(tmp_path / "twice.log.gz")[0].points_seen == 10
    with pytest.raises(UnreadableLog, match="is compressed more than 4 times"):
        read_log(tmp_path / "often.log.gz")
