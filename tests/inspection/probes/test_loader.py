"""A few batches of the loader tell what is wrong with it; nothing of it is used up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from inspection.probes.on_the_bench import bench_of, causes, line, looked, small_batch, small_model
from stayfinite.inspection.probes import loader as probe

Row = tuple[Tensor, int]
X = torch.randn(64, 8, generator=torch.Generator().manual_seed(5))
Y = torch.arange(64) % 4


def found_in(loader: Iterable[Any], model: nn.Module | None = None) -> Any:
    return looked(bench_of(model, loader=loader), probe)


class Noisy(Dataset[Row]):
    """Each row comes with fresh noise, from a generator of its own or from the global one."""

    def __init__(self, *, own: bool) -> None:
        self.own = numpy.random.default_rng(0) if own else None

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Row:
        noise = numpy.random.normal(size=8) if self.own is None else self.own.normal(size=8)
        return X[index] + torch.tensor(noise, dtype=torch.float32), index % 4


class Stream(IterableDataset[Row]):
    """Rows one after the other; split between workers or not."""

    def __init__(self, *, split: bool) -> None:
        self.split = split

    def __iter__(self) -> Iterator[Row]:
        worker = get_worker_info()
        rows = ((X[index], index % 4) for index in range(64))
        return itertools.islice(rows, worker.id, None, worker.num_workers) if self.split and worker else rows


class Slow(Dataset[Row]):
    """Takes its time for every row."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Row:
        time.sleep(0.02)
        return X[index], index % 4


class Broken(Dataset[Row]):
    """One row cannot be read."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Row:
        if index == 9:
            raise OSError("row 9 is truncated")
        return X[index], index % 4


def shuffled(rows: int = 64, **settings: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(X[:rows], Y[:rows]), batch_size=8, shuffle=True, **settings)


def test_a_healthy_loader_is_quiet() -> None:
    found = found_in(shuffled())
    assert causes(found) == []
    assert {each.status for each in found.lines} == {"pass"}


def test_without_a_loader_there_is_nothing_to_see() -> None:
    assert line(looked(bench_of(), probe), "rows").status == "skip"


def test_rows_in_the_order_of_their_classes_are_found_and_a_rare_class_is_not() -> None:
    ordered = DataLoader(TensorDataset(X, Y.sort().values), batch_size=8)
    assert causes(found_in(ordered)) == ["unshuffled"]
    rare = DataLoader(TensorDataset(X, (torch.arange(64) % 20 == 0).long()), batch_size=8)
    assert causes(found_in(rare)) == []


def test_values_that_are_not_finite_are_found_with_their_rows_and_masks_are_not() -> None:
    bad = X.clone()
    bad[13, 2] = float("nan")
    found = found_in(DataLoader(TensorDataset(bad, Y), batch_size=8))
    assert causes(found) == ["bad-data-row"]
    assert "batch 1, 0, rows 5" in found.findings[0].evidence[0]
    masks = X.clone().masked_fill(X > 1, float("-inf"))
    assert causes(found_in(DataLoader(TensorDataset(masks, Y), batch_size=8))) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_row_that_cannot_be_read_is_found(workers: int) -> None:
    found = found_in(DataLoader(Broken(), batch_size=8, num_workers=workers))
    assert causes(found) == ["bad-data-row"]


def test_a_loader_that_drops_its_only_batch_is_empty() -> None:
    few = DataLoader(TensorDataset(X[:3], Y[:3]), batch_size=8, drop_last=True)
    assert causes(found_in(few)) == ["empty-batch"]
    assert causes(found_in([(X[:8], Y[:8]), (X[:0], Y[:0])])) == ["empty-batch"]


def test_the_same_batch_again_and_again_is_found() -> None:
    assert causes(found_in([(X[:8], Y[:8])] * 4)) == ["duplicate-rows"]
    assert causes(found_in([(X[at : at + 8], Y[at : at + 8]) for at in range(0, 32, 8)])) == []


def test_workers_that_draw_the_same_numbers_are_told_from_those_that_draw_their_own() -> None:
    assert causes(found_in(DataLoader(Noisy(own=True), batch_size=8, num_workers=2))) == ["workers-alike"]
    found = found_in(DataLoader(Noisy(own=False), batch_size=8, num_workers=2))
    assert causes(found) == []
    assert "different random numbers" in line(found, "workers").seen


def test_a_stream_that_every_worker_reads_whole_is_told_from_one_that_is_split() -> None:
    assert causes(found_in(DataLoader(Stream(split=False), batch_size=8, num_workers=2))) == ["workers-alike"]
    assert causes(found_in(DataLoader(Stream(split=True), batch_size=8, num_workers=2))) == []


def test_a_last_batch_of_one_row_is_found_where_the_model_normalises_over_it() -> None:
    def normalised() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))

    assert causes(found_in(shuffled(57), normalised())) == ["last-batch-of-one"]
    assert causes(found_in(shuffled(58), normalised())) == []
    assert causes(found_in(shuffled(57, drop_last=True), normalised())) == []
    assert causes(found_in(shuffled(57), small_model())) == []


def test_a_loader_that_keeps_the_model_waiting_is_found() -> None:
    bench = bench_of(loader=DataLoader(Slow(), batch_size=8, shuffle=True))
    bench.__dict__["first"] = replace(bench.first, seconds=0.001)  # as on a machine that nobody else uses
    assert causes(looked(bench, probe)) == ["loader-too-slow"]


def test_the_first_batch_may_take_long_to_come() -> None:
    class LateWorkers:
        def __iter__(self) -> Iterator[Any]:
            time.sleep(0.05)
            yield X[:8], Y[:8]
            yield X[:0], Y[:0]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stayfinite.inspection.probes.loader.BUDGET", 0.02)
        assert causes(found_in(LateWorkers())) == ["empty-batch"]


def test_an_iterator_is_left_for_the_training() -> None:
    rows = iter([small_batch()] * 3)
    assert line(found_in(rows), "rows").status == "skip"
    assert len(list(rows)) == 3


class Unnumbered(Dataset[Row]):
    """Gives any row that it is asked for, and does not say how many there are: the sampler knows."""

    def __getitem__(self, index: int) -> Row:
        return X[index], index % 4


def test_a_dataset_that_does_not_say_its_length_is_looked_at_all_the_same() -> None:
    found = found_in(DataLoader(Unnumbered(), sampler=range(32), batch_size=8, num_workers=2))
    assert causes(found) == []
    assert "2 workers" in line(found, "workers").seen


def test_workers_that_stay_alive_are_not_left_behind() -> None:
    lasting = shuffled(num_workers=2, persistent_workers=True)
    assert causes(found_in(lasting)) == []
    assert lasting._iterator is None
    assert lasting.timeout == 0
