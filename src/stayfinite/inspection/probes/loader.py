"""The loader: empty batches, values, order, worker seeds, and whether it keeps up with the step."""

import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from stayfinite.autopsy.steps.batch_parts import bad_rows, batch_items, batch_size, take_rows
from stayfinite.autopsy.steps.step import untouched
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.notes import Notes

MOST_BATCHES = 8
BUDGET = 4.0  # seconds for further batches after the first has arrived; at least one second
PATIENCE = 30.0  # seconds that workers may take per batch
LABELS = ("label", "labels", "target", "targets", "y", "class", "classes", "label_ids")


@dataclass(slots=True, kw_only=True)
class Readings:
    """Observations of a loader."""

    batches: list[Any] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """Seconds per batch; the first includes starting the workers."""

    error: str = ""

    @property
    def seconds_each(self) -> float | None:
        """Median seconds per batch, without the first."""
        later = sorted(self.seconds[1:])
        return later[len(later) // 2] if later else None

    @property
    def empty(self) -> list[int]:
        """Numbers of batches without rows."""
        return [number for number, batch in enumerate(self.batches) if _is_empty(batch)]

    def bad(self) -> list[str]:
        """Rows with NaN or infinity: `batch 2, batch.pixels, rows 0, 3`. Infinities of a mask do not count."""
        found = []
        for number, batch in enumerate(self.batches):
            size = batch_size(batch) or 0
            for name, item in batch_items(batch).items():
                if item.is_floating_point() and bool(item.isnan().any() | item.isposinf().any()):
                    rows = ", ".join(map(str, bad_rows(item, size)[:4]))
                    found.append(f"batch {number}, {name.removeprefix('batch.')}" + (f", rows {rows}" if rows else ""))
        return found

    def all_alike(self) -> bool:
        return len(self.batches) > 2 and all(alike(self.batches[0], other) for other in self.batches[1:])


def read_some(loader: Iterable[Any]) -> Readings:
    """Read a few batches in bounded time. The loader is left unchanged."""
    found = Readings()
    reading: Any = None
    with warnings.catch_warnings(), _left_alone(loader):
        warnings.simplefilter("ignore")
        try:
            start, last = math.inf, time.perf_counter()
            reading = iter(loader)
            while len(found.batches) < MOST_BATCHES and last - start < BUDGET:
                try:
                    found.batches.append(next(reading))
                except StopIteration:
                    break
                found.seconds.append(time.perf_counter() - last)
                last = time.perf_counter()
                start = min(start, last)
        except Exception as error:  # a dataset or collator can raise anything
            found.error = _in_short(error)
        finally:
            # Otherwise the garbage collector may wait seconds for workers.
            shut_down = getattr(reading, "_shutdown_workers", None)
            if shut_down is not None:
                shut_down()
    return found


def _in_short(error: Exception) -> str:
    """The last line of the error if a worker sends its whole traceback."""
    lines = str(error).strip().splitlines() or [""]
    return lines[-1] if "worker process" in lines[0] else f"{type(error).__name__}: {lines[0]}"


def streams_repeat(loader: Any, readings: Readings) -> bool:
    """Whether all workers of a streamed dataset return the same rows, because none selects its shard."""
    workers = getattr(loader, "num_workers", 0)
    if workers < 2 or not isinstance(getattr(loader, "dataset", None), IterableDataset):
        return False
    firsts = readings.batches[:workers]
    return len(firsts) > 1 and not _is_empty(firsts[0]) and all(alike(firsts[0], other) for other in firsts[1:])


def workers_draw_alike(loader: Any) -> bool | None:
    """Whether two workers draw the same random numbers for a randomized row; None if rows are not random."""
    if not isinstance(loader, DataLoader) or loader.num_workers < 2 or isinstance(loader.dataset, IterableDataset):
        return None
    if length_of(loader.dataset) == 0:
        return None
    probe: DataLoader[Any] = DataLoader(
        loader.dataset,
        batch_sampler=[[0, 0], [0, 0]],
        num_workers=2,
        collate_fn=_as_they_are,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator().manual_seed(0),
        timeout=PATIENCE,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one, other = list(probe)
    except Exception:  # an unreadable row is another problem
        return None
    if alike(one[0], one[1]):
        return None
    return alike(one[0], other[0]) and alike(one[1], other[1])


def length_of(source: Any) -> int | None:
    """The number of rows of a dataset; None if unknown."""
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return None


def labels_in(batch: Any) -> Tensor | None:
    """The class of each row, if a batch has one."""
    items = batch_items(batch)
    size = batch_size(batch)
    named = [item for name, item in items.items() if name.rpartition(".")[2].lower() in LABELS]
    last = [] if isinstance(batch, dict) or not items else [list(items.values())[-1]]
    for item in (*named, *last):
        if item.dim() in (1, 2) and item.numel() == size and not item.is_floating_point():
            return item.reshape(-1)
    return None


def purity(labels: Sequence[Tensor]) -> float:
    """Mean share of the most frequent label per batch."""
    shares = [float(each.unique(return_counts=True)[1].max()) / each.numel() for each in labels if each.numel()]
    return sum(shares) / len(shares) if shares else 0.0


def spread_labels(loader: Any, count: int) -> Tensor | None:
    """Labels of rows spread over a map-style dataset."""
    dataset = getattr(loader, "dataset", None)
    if not isinstance(loader, DataLoader) or dataset is None or isinstance(dataset, IterableDataset):
        return None
    try:
        length = len(dataset)
        rows = [dataset[index * (length - 1) // (count - 1)] for index in range(count)]
        return labels_in(loader.collate_fn(rows))
    except Exception:  # a dataset can raise anything
        return None


def alike(one: Any, other: Any) -> bool:
    """Whether two batches hold the same numbers."""
    first, second = _numbers(one), _numbers(other)
    return bool(first) and len(first) == len(second) and all(map(_equal, first, second))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    return type(one) is type(other) and one == other


def _numbers(part: Any) -> list[Any]:
    """Tensors and plain values of a batch or a row, arrays as tensors."""
    if isinstance(part, Tensor):
        return [part]
    if isinstance(part, dict):
        return [each for value in part.values() for each in _numbers(value)]
    if isinstance(part, list | tuple):
        return [each for value in part for each in _numbers(value)]
    if hasattr(part, "__array__"):
        try:
            return [torch.as_tensor(part.__array__())]
        except (TypeError, ValueError, RuntimeError):
            return []
    return [part] if isinstance(part, int | float | str | bytes) else []


def _is_empty(batch: Any) -> bool:
    items = [item for item in batch_items(batch).values() if item.dim()]
    if not items:
        return isinstance(batch, list | tuple | dict) and not batch
    return all(item.shape[0] == 0 for item in items)


def _as_they_are(rows: list[Any]) -> list[Any]:
    return rows


@contextmanager
def _left_alone(loader: Any) -> Iterator[None]:
    """Prevent persistent workers from outliving this probe, and waits without timeout."""
    iterator, timeout = getattr(loader, "_iterator", None), getattr(loader, "timeout", None)
    patient = isinstance(loader, DataLoader) and loader.num_workers > 0 and not loader.timeout
    if patient:
        loader.timeout = PATIENCE
    try:
        yield
    finally:
        if patient:
            loader.timeout = timeout
        if isinstance(loader, DataLoader) and iterator is None:
            loader._iterator = None


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
