"""The stream itself, over rows that are numbers: who gets which, in which order, and where it goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quick_ones import quick_ones
from stayfinite.errors import LoaderFailed, StateError
from stayfinite.readers.data.chunk import Source
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.stream import Bounds, Row, Rows, Spot, Stream, Stripe, windows

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=6)
WINDOW = st.integers(1, 50)
POOL = st.integers(1, 9)


def numbered(sizes: list[int], *, window: int = 16, pool: int = 5, batch: int = 2, seed: int = 0) -> Stream:
    """A stream over files of so many rows; each row is its file's number and its own."""
    files = [Source(path=Path(f"{n}"), kind="txt", size=1, chunks=lambda: iter(())) for n in range(len(sizes))]

    def rows_of(source: Source):
        return ((int(source.path.name), number) for number in range(sizes[int(source.path.name)]))

    def make(rows, chance):
        for start in range(0, len(rows), batch):
            yield [*rows[start : start + batch], chance.random()]

    return Stream(
        rows=Rows(files, rows_of, seed=seed), make=make, pool=pool, bounds=Bounds(rows=window), seed=seed,
        size=lambda _: 1,
    )  # fmt: skip


def rows_in(batches) -> Counter:
    return Counter(row for batch in batches for row in batch[:-1])


def every_row(sizes: list[int]) -> Counter:
    return Counter((file, row) for file, count in enumerate(sizes) for row in range(count))


def epochs_of(loader: StreamLoader, count: int) -> list:
    """Batches of so many epochs; one without rows is an error that is looked for elsewhere."""
    found = []
    for _ in range(count):
        try:
            found += loader
        except LoaderFailed as error:
            if error.code != "no-rows":
                raise
    return found


def some_of(loader: StreamLoader, count: int) -> list:
    """The first batches of an epoch."""
    try:
        return list(islice(loader, count)) if count else []
    except LoaderFailed as error:
        if error.code != "no-rows":
            raise
        return []


@settings(deadline=None)
@given(SIZES, WINDOW, POOL, st.integers(1, 7), st.integers(0, 3))
def test_each_row_comes_exactly_once_an_epoch_over_all_stripes(sizes, window, pool, stripes, epoch):
    stream = numbered(sizes, window=window, pool=pool)
    given_out = [
        batch for number in range(stripes) for _, batch in stream.batches(Stripe(number, stripes), Spot(epoch))
    ]
    assert rows_in(given_out) == every_row(sizes)


@settings(deadline=None)
@given(st.integers(0, 200), WINDOW, st.text(max_size=5))
def test_the_shuffle_is_a_permutation_of_each_window_and_crosses_none(count, window, draw):
    rows = [Row(0, number, number) for number in range(count)]
    found = list(windows(rows, Stripe(0, 1), bounds=Bounds(rows=window), draw=draw, size=lambda _: 1))
    assert [sorted(each.rows) for each in found] == [
        list(range(start, min(start + window, count))) for start in range(0, count, window)
    ]
    assert [(each.number, each.row) for each in found] == list(enumerate(range(0, count, window)))


@settings(deadline=None, max_examples=60)
@given(SIZES, WINDOW, POOL, st.integers(1, 3), st.data())
def test_a_stream_that_goes_on_gives_the_very_batches_of_one_that_was_not_cut(sizes, window, pool, ranks, data):
    stream = numbered(sizes, window=window, pool=pool)
    rank = data.draw(st.integers(0, ranks - 1))
    whole = epochs_of(StreamLoader(stream, rank=rank, ranks=ranks), 2)
    cut = data.draw(st.integers(0, len(whole)))
    first = StreamLoader(stream, rank=rank, ranks=ranks)
    before: list = []
    for _ in range(2):
        if len(before) < cut:
            before += some_of(first, cut - len(before))
    second = StreamLoader(stream, rank=rank, ranks=ranks)
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    assert before == whole[:cut]
    assert (before + epochs_of(second, 3))[: len(whole)] == whole


@settings(deadline=None, max_examples=60)
@given(SIZES, WINDOW, st.integers(1, 4), st.integers(1, 4), st.integers(0, 30))
def test_on_another_number_of_ranks_no_row_is_lost(sizes, window, ranks, later, steps):
    stream = numbered(sizes, window=window)
    loaders = [StreamLoader(stream, rank=rank, ranks=ranks) for rank in range(ranks)]
    seen = Counter()
    for loader in loaders:
        seen += rows_in(some_of(loader, steps))
    # Only what was cut in the first epoch; a rank that has gone through it stands at the next one.
    if any(loader.state_dict()["spots"][0][0] for loader in loaders):
        return
    states = [loader.state_dict() for loader in loaders]
    for rank in range(later):
        loader = StreamLoader(stream, rank=rank, ranks=later)
        loader.load_states(states)
        seen += rows_in(epochs_of(loader, 1))
    assert set(seen) == set(every_row(sizes))
    most = window * (1 + max(state["spots"][0][1] for state in states) - min(s["spots"][0][1] for s in states))
    assert sum((seen - every_row(sizes)).values()) <= (most if ranks != later else 0)


@given(st.tuples(*[st.integers(0, 2**40)] * 6))
def test_a_spot_round_trips_through_plain_numbers(numbers):
    assert list(Spot.of(list(numbers))) == list(numbers)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("workers", quick_ones([1, 2, 3], 2))
def test_workers_share_the_rows_and_go_on_where_they_were(workers):
    sizes = [13, 40, 7, 55]
    stream = numbered(sizes)
    loader = StreamLoader(stream, workers=workers)
    whole = [*loader, *loader]
    assert rows_in(whole) == every_row(sizes) + every_row(sizes)
    for cut in (1, 2, len(whole) // 2 - 1, len(whole) // 2 + 1):
        first, before = StreamLoader(stream, workers=workers), []
        for _ in range(2):
            before += islice(first, cut - len(before)) if len(before) < cut else ()
        second = StreamLoader(stream, workers=workers)
        second.load_state_dict(first.state_dict())
        after = [*second, *(second if cut < len(whole) // 2 else ())]
        assert before + after == whole


def test_another_number_of_workers_is_another_order_and_loses_nothing():
    said: list[str] = []
    sizes = [30, 30]
    first = StreamLoader(numbered(sizes), workers=0)
    before = list(islice(first, 20))
    second = StreamLoader(numbered(sizes), workers=2, say=said.append)
    second.load_state_dict(first.state_dict())
    assert set(rows_in(before) + rows_in(second)) == set(every_row(sizes))
    assert "No row is lost" in said[0]


def test_epochs_differ_in_order_and_seeds_do_too():
    loader = StreamLoader(numbered([40, 40]))
    first, second = list(loader), list(loader)
    assert rows_in(first) == rows_in(second)
    assert first != second
    assert list(StreamLoader(numbered([40, 40], seed=1))) != first
    assert list(StreamLoader(numbered([40, 40]))) == first


def test_a_window_of_long_rows_is_full_before_its_count():
    stream = replace(numbered([100]), bounds=Bounds(rows=1000, size=50), size=lambda _: 10)
    spots = [spot for spot, _ in stream.batches(Stripe(0, 1), Spot())]
    assert max(spot.window for spot in spots) == 19


def test_a_rank_without_a_row_is_told_so():
    with pytest.raises(LoaderFailed, match="rank 3 of 4 has no batch.*too few rows"):
        list(StreamLoader(numbered([3]), rank=3, ranks=4))


def test_a_place_in_other_data_is_refused():
    state = StreamLoader(numbered([3]), data="one").state_dict()
    with pytest.raises(StateError, match="from other data"):
        StreamLoader(numbered([3]), data="two").load_state_dict(state)


@pytest.mark.parametrize(
    "wrong", [{}, {"spots": [[1]]}, {"spots": []}, {"version": 2}, {"spots": [[0, 0, 0, 0, -1, 0]]}]
)
def test_what_is_no_place_is_refused(wrong):
    state = StreamLoader(numbered([3])).state_dict() | wrong if wrong else {}
    loader = StreamLoader(numbered([3]))
    with pytest.raises(StateError, match="not a stream position"):
        loader.load_states([state])
    assert loader.state_dict() == StreamLoader(numbered([3])).state_dict()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_cannot_be_read_is_one_sentence_without_a_workers_traceback(workers):
    def gone(source: Source):
        yield 1
        raise FileNotFoundError(2, "No such file", str(source.path))

    files = [Source(path=Path("part-3.jsonl"), kind="txt", size=1, chunks=lambda: iter(()))]
    stream = replace(numbered([1]), rows=Rows(files, gone))
    with pytest.raises(LoaderFailed, match="part-3.jsonl was removed during training") as caught:
        list(StreamLoader(stream, workers=workers))
    assert "Traceback" not in str(caught.value)
