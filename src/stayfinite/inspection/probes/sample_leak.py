"""Check for leaks between samples: change one row and compare the outputs of the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from stayfinite.autopsy.steps.batch_parts import batch_items, batch_size
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import with_inputs, with_other_row
from stayfinite.inspection.bench.still_pass import StillPass, still_pass

NOTHING = 1e-6  # relative changes below this are rounding


@dataclass(frozen=True, slots=True)
class Leak:
    """How far a change spreads to other rows."""

    share: float
    """Largest change elsewhere over the largest change in the row itself."""
    where: str
    """The affected output."""
    rows: int
    """Number of positions compared."""


def leak_between_samples(bench: Bench, inputs: list[str], *, fresh: bool = False) -> Leak | None:
    """The leak between the first and last row; None if no output has one row per sample, or none changes.

    ``inputs`` names the tensors to change; ``fresh``: the weights differ from those of the shared passes.
    """
    base = still_pass(bench.step, bench.few) if fresh else bench.still
    items = batch_items(bench.few)
    rows = batch_size(bench.few) or 0
    changed = [name for name in inputs if _has_rows(items[name], rows)]
    if rows < 2 or not changed:
        return None
    scores = [call.input for call in bench.first.seen.losses if call.input.dim() > 1]
    classes = {int(each.shape[1]) for each in scores if each.shape[0] != each.shape[1]}
    leaks = []
    for row in (0, rows - 1):
        other = still_pass(bench.step, with_inputs(bench.few, changed, partial(with_other_row, row=row)))
        leaks.append(_compared(base, other, row, rows, classes))
        # Both directions: if time is the first dimension, only the past affects the future.
        if leaks[-1] is None or leaks[-1].share < NOTHING:
            break
    return min((leak for leak in leaks if leak is not None), key=lambda leak: leak.share, default=None)


def _compared(base: StillPass, other: StillPass, row: int, rows: int, classes: set[int]) -> Leak | None:
    pairs = {f"output {name}": (item, other.outputs.get(name)) for name, item in base.outputs.items()}
    if not any(_has_rows(item, rows) for item, _ in pairs.values()):
        calls = zip(base.seen.losses, other.seen.losses, strict=False)
        pairs = {f"the input of {a.name}": (a.input, b.input) for a, b in calls}
    found = []
    for name, (before, after) in pairs.items():
        if after is None or before.shape != after.shape or not _has_rows(before, rows):
            continue
        if rows in before.shape[1:2] and rows not in classes:
            continue  # a value per pair of samples is not an output of one sample
        change = (after.float() - before.float()).abs().reshape(rows, -1).amax(1)
        own = float(change[row])
        others = max(float(value) for index, value in enumerate(change) if index != row)
        if own > NOTHING * float(before.float().abs().amax()) and own > 0:
            found.append(Leak(others / own, name, rows))
    return max(found, key=lambda leak: leak.share, default=None)


def _has_rows(item: Tensor, rows: int) -> bool:
    return item.dim() > 0 and item.shape[0] == rows
