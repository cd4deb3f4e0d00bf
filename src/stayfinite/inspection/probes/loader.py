"""The loader: empty batches, values, order, worker seeds, and whether it keeps up with the step."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, SequentialSampler

from stayfinite.autopsy.steps.batch_parts import batch_items, batch_size, take_rows
from stayfinite.autopsy.steps.step import untouched
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes.loader_readings import (
    Readings,
    labels_in,
    length_of,
    purity,
    read_some,
    spread_labels,
    streams_repeat,
    workers_draw_alike,
)

GROUP = "Loader"
ROWS = "rows of the batches"
APART = 0.3  # how much purer batches must be than the data for the order to be suspicious
FEWEST_ROWS = 4
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def look(bench: Bench, notes: Notes) -> None:
    """Read a few batches and record their properties."""
    loader = bench.loader
    reason = _obstacle(loader)
    if loader is None or reason:
        notes.check(GROUP, ROWS, "empty-batch", "duplicate-rows", skipped=reason)
        return
    readings = read_some(loader)
    if readings.error:
        notes.saw("loader.error", readings.error, "the loader")
        notes.saw("data.bad_rows", [readings.error], "the loader")
        notes.check(GROUP, "reading batches", "empty-batch", "bad-data-row", seen=readings.error)
        return
    _look_at_rows(loader, readings, notes)
    _look_at_order(loader, readings, notes)
    _look_at_workers(loader, readings, notes)
    _look_at_last_batch(bench, loader, notes)
    _look_at_time(bench, readings, notes)
    _look_at_devices(bench, loader, readings, notes)


def _obstacle(loader: Any) -> str:
    if loader is None:
        return "no loader given"
    if iter_is_own(loader) or iter_is_own(getattr(loader, "dataset", None)):
        return "it can be read only once, so it was not read"
    return ""


def iter_is_own(source: Any) -> bool:
    """Whether it is an iterator, whose rows are consumed by reading."""
    return hasattr(source, "__next__") and hasattr(source, "__iter__")


def _look_at_rows(loader: Any, readings: Readings, notes: Notes) -> None:
    sizes = [batch_size(batch) or 0 for batch in readings.batches]
    if not readings.batches:
        notes.saw("loader.batches", 0, "the loader")
    elif readings.empty:
        notes.saw("loader.empty_batches", readings.empty, "the loader")
    if readings.all_alike():
        count = len(readings.batches)
        notes.saw("data.duplicate_share", (count - 1) / count, f"the first {count} batches of the loader")
    known = f" of {len(loader)}" if hasattr(loader, "__len__") and length_of(loader) is not None else ""
    seen = f"{len(sizes)}{known} batches read, of {min(sizes, default=0)} to {max(sizes, default=0)} rows"
    notes.check(GROUP, ROWS, "empty-batch", "duplicate-rows", seen=seen)
    bad = readings.bad()
    if bad:
        notes.saw("data.bad_rows", bad[:4], "the loader")
    floats = any(item.is_floating_point() for batch in readings.batches for item in batch_items(batch).values())
    seen = "finite" if floats else "whole numbers only"
    notes.check(GROUP, "finite values", "bad-data-row", seen=seen)


def _look_at_order(loader: Any, readings: Readings, notes: Notes) -> None:
    labels = [found for batch in readings.batches if (found := labels_in(batch)) is not None]
    title = "shuffling"
    if not labels or max(len(each) for each in labels) < FEWEST_ROWS:
        notes.check(GROUP, title, "unshuffled", skipped="no classes, or too few rows")
        return
    pure = purity(labels)
    spread = spread_labels(loader, max(len(each) for each in labels))
    at_large = purity([torch.cat(labels) if spread is None else spread])
    if at_large < pure - APART:
        notes.saw("labels.batch_purity", pure, "the loader")
    stored = isinstance(getattr(loader, "sampler", None), SequentialSampler)
    seen = f"{pure:.0%} of a batch is its most common class" + (", read in stored order" if stored else "")
    notes.check(GROUP, title, "unshuffled", seen=seen)


def _look_at_workers(loader: Any, readings: Readings, notes: Notes) -> None:
    title = "loader workers"
    workers = getattr(loader, "num_workers", 0)
    if workers < 2:
        notes.check(GROUP, title, "workers-alike", seen=f"{workers} workers")
        return
    repeats = streams_repeat(loader, readings)
    drawn = None if repeats else workers_draw_alike(loader)
    if repeats:
        notes.saw("loader.workers_repeat", workers, "the loader")
    elif drawn:
        notes.saw("loader.workers_draw_alike", workers, "the loader")
    seen = "no randomness in the rows" if drawn is None else "different random numbers"
    notes.check(GROUP, title, "workers-alike", seen=f"{workers} workers; {seen}")


def _look_at_last_batch(bench: Bench, loader: Any, notes: Notes) -> None:
    norms = [name for name, m in bench.model.named_modules() if isinstance(m, NORMS) and m.training]
    if not norms or not isinstance(loader, DataLoader) or loader.batch_size is None or loader.drop_last:
        return
    rows = length_of(loader.dataset)
    if rows is None:
        return
    left = rows % loader.batch_size
    title = "last batch and BatchNorm"
    if left == 1 and not _works_with_one_row(bench):
        notes.saw("loader.last_batch_fails", rows, norms[0])
    notes.check(GROUP, title, "last-batch-of-one", seen=f"{left or loader.batch_size} of {rows} rows in it")


def _works_with_one_row(bench: Bench) -> bool:
    size = batch_size(bench.batch)
    if size is None:
        return True
    try:
        with untouched(bench.model):
            bench.run_forward(take_rows(bench.step.fresh_batch(), [0], size))
    except ValueError as error:
        return "more than 1 value per channel" not in str(error)
    except Exception:  # another problem, or rows that were sliced wrongly
        return True
    return True


def _look_at_time(bench: Bench, readings: Readings, notes: Notes) -> None:
    each, step = readings.seconds_each, bench.first.seconds
    title = "loader speed"
    if each is None or not step:
        notes.check(GROUP, title, "loader-too-slow", skipped="too few batches or no step to compare")
        return
    notes.saw("loader.seconds_per_batch", each, "the loader")
    notes.saw("loader.seconds_per_step", step, "the first step")
    seen = f"{_time(each)} per batch, {_time(step)} per forward and backward pass"
    notes.check(GROUP, title, "loader-too-slow", seen=seen)


def _look_at_devices(bench: Bench, loader: Any, readings: Readings, notes: Notes) -> None:
    home = next((p.device for p in bench.model.parameters()), None)
    places = {str(item.device) for batch in readings.batches for item in batch_items(batch).values()}
    if home is None or not places:
        return
    seen = f"batches on {', '.join(sorted(places))}, model on {home}"
    if home.type == "cuda" and places == {"cpu"}:
        pinned = bool(getattr(loader, "pin_memory", False))
        seen += ", pinned" if pinned else "; pin_memory=True and .to(device, non_blocking=True) let the copy overlap"
    notes.check(GROUP, "device of the batches", seen=seen)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
