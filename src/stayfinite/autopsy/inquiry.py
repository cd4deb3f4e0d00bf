"""Which worlds are run for a step, and in which order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from stayfinite.autopsy.conclusions.conclude import UNDECIDED, conclude
from stayfinite.autopsy.conclusions.conclusion import UNDECIDED_SPIKE, Evidence
from stayfinite.autopsy.conclusions.readings import Readings
from stayfinite.autopsy.steps.batch_parts import batch_size, take_rows
from stayfinite.autopsy.steps.step import Outcome, Step
from stayfinite.autopsy.steps.trace import Trace
from stayfinite.autopsy.worlds.elsewhere import can_be_run
from stayfinite.autopsy.worlds.worlds import ELSEWHERE, Materials, World, all_worlds, bad, low_precision
from stayfinite.errors import UsageError

MOST_SUSPECTED = 8
MOST_RUNS = 64
"""Most re-runs of a search."""


def guilty_rows(
    step: Step, is_bad: Callable[[Outcome], bool], suspected: list[int], out_of_time: Callable[[], bool]
) -> list[int]:
    """Rows that are bad alone; empty if the batch cannot be split, or no row is bad alone.

    Arguments:
        suspected: rows that the trace points at; tried first.
    """
    size = batch_size(step.batch)
    if size is None or size < 2:
        return []
    runs = 0

    def bad_alone(rows: list[int]) -> bool:
        nonlocal runs
        runs += 1
        outcome = step.changed(batch=take_rows(step.batch, rows, size)).run()
        return not outcome.error and is_bad(outcome)

    rest = [row for row in range(size) if row not in suspected]
    if suspected and rest and len(suspected) <= MOST_SUSPECTED and not bad_alone(rest):
        # A row may be bad but not runnable alone (batch norm of one row).
        return [row for row in suspected if bad_alone([row])] or suspected
    found: list[int] = []
    todo = [list(range(size))]
    while todo and runs < MOST_RUNS and not out_of_time():
        rows = todo.pop()
        if len(rows) == 1:
            found += rows
            continue
        middle = len(rows) // 2
        halves = [half for half in (rows[:middle], rows[middle:]) if bad_alone(half)]
        todo += halves
    return sorted(found)


def without(step: Step, rows: list[int]) -> World | None:
    """The world without these rows."""
    size = batch_size(step.batch)
    if size is None or not rows or len(rows) >= size:
        return None
    kept = [row for row in range(size) if row not in rows]
    named = ", ".join(map(str, rows[:8])) + (" ..." if len(rows) > 8 else "")
    change = f"row{'s' if len(rows) > 1 else ''} {named} left out"
    remedy = f"leave out row{'s' if len(rows) > 1 else ''} {named}"
    return World("rows_removed", change, step.changed(batch=take_rows(step.batch, kept, size)), remedy)


NOT_FOR_A_BAD_LEAF = (
    "fp32", "bf16", "origin_fp32", "module_bf16", "rowwise_scale", "small_loss_scale", "math_attention", "eager",
    "dropout_off",
)  # fmt: skip
"""Worlds that cannot help where a leaf was bad before anything was computed."""


class Inquiry:
    """Runs worlds, cheapest first, until nothing more can be learned.

    Arguments:
        deadline: on the monotonic clock; no world is started after it.
    """

    def __init__(self, step: Step, trace: Trace, materials: Materials, deadline: float) -> None:
        self._step, self._trace, self._materials, self._deadline = step, trace, materials, deadline
        self._builders = all_worlds(step, trace, materials)
        self.readings = Readings(step, trace)
        self.outcomes: dict[str, Outcome] = {}
        self.is_good: dict[str, bool] = {}
        self.worlds: dict[str, World] = {}
        """Worlds that were run."""
        self.rows: list[int] = []
        self.reached: float | None = None
        """Largest magnitude in the output of the origin's module in fp32."""

    def run_one(self, name: str) -> None:
        """Run one world by name."""
        if name == "rows_removed":
            self._run(self._builders["same"]())
            self._find_rows()
            if name not in self.worlds:
                raise UsageError(
                    "no single row of the batch is the cause", fix="leave --world out to try the other worlds"
                )
            return
        if name not in self._builders:
            raise UsageError(
                f"no world {name!r} for this step", fix=f"try {', '.join([*self._builders, 'rows_removed'])}"
            )
        self._run(self._builders[name]())

    def run_all(self) -> None:
        """Run every world that can still separate causes."""
        for name, build in self._builders.items():
            if self._late():
                return
            if name != ELSEWHERE and not self._pointless(name):
                self._run(build())
            if (
                name == "same"
                and self.is_good.get("same")
                and self._materials.trigger not in ("manual", "scale-search")
            ):
                self._run_again()
                return
        self._find_rows()
        self._run_elsewhere()

    def evidence(self) -> Evidence:
        """What is known by now."""
        modules = {name: world.modules for name, world in self.worlds.items() if world.modules}
        return Evidence(self.readings, self.outcomes, self.is_good, self.rows, self._materials, self.reached, modules)

    def _run(self, world: World | None) -> None:
        if world is None:
            return
        self.worlds[world.name] = world
        module = self._trace.module if world.name == "fp32" else ""
        if module:
            with _largest_output(self._step.model, module) as seen:
                outcome = world.step.run()
            self.reached = seen[0] if seen else None
        else:
            outcome = world.step.run()
        self.outcomes[world.name] = outcome
        if not outcome.error:
            self.is_good[world.name] = not bad(outcome, self._materials)

    def _run_again(self) -> None:
        """Run twice more: the fault may be intermittent."""
        for _ in range(2):
            outcome = self._step.run()
            if bad(outcome, self._materials):
                self.outcomes["same"], self.is_good["same"] = outcome, False
                return

    def _pointless(self, name: str) -> bool:
        """Whether a world's outcome is already certain or useless."""
        bad_leaf = self._trace.origin is not None and bool(self._trace.origin.leaf)
        if bad_leaf and name in NOT_FOR_A_BAD_LEAF:
            return True
        if self.evidence().finite_spike and name in ("math_attention", "eager_attention", "eager", "dropout_off"):
            return True  # they draw other random numbers, on which a spike depends
        return name in ("good_weights", "previous_update_undone") and self.is_good.get("fp32", False)

    def _find_rows(self) -> None:
        if self.is_good.get("same", True):
            return
        rows = guilty_rows(self._step, lambda outcome: bad(outcome, self._materials), self.readings.rows, self._late)
        world = without(self._step, rows)
        if world is None:
            return
        self._run(world)
        if self.is_good.get("rows_removed"):
            self.rows = rows

    def _run_elsewhere(self) -> None:
        """Run on another device, if nothing else has decided and there is time."""
        build = self._builders.get(ELSEWHERE)
        if build is None or self.is_good.get("same", True) or self._decided():
            return
        if any(name in self._builders and self.is_good.get(name, True) for name in ("dropout_off", "eager")):
            return  # dropout and compiled code cannot be moved, so they must be ruled out first
        dtype = low_precision(self._step, self._trace) or torch.float32
        if can_be_run(self._step, dtype, self._deadline - time.monotonic()):
            self._run(build())

    def _decided(self) -> bool:
        found = conclude(self.evidence())
        leaf = self._trace.origin is not None and bool(self._trace.origin.leaf)
        undecided = (UNDECIDED, *UNDECIDED_SPIKE.values())
        return leaf or (found.cause not in undecided and any(self.is_good.get(name) for name in found.worlds))

    def _late(self) -> bool:
        return time.monotonic() >= self._deadline


@contextmanager
def _largest_output(model: nn.Module, path: str) -> Iterator[list[float]]:
    """Yield a list with the largest finite magnitude of a module's output; empty if it did not run."""
    seen: list[float] = []

    def watch(_module: nn.Module, _inputs: Any, output: Any) -> None:
        for item in tree_iter(output):
            if isinstance(item, Tensor) and item.is_floating_point() and item.numel():
                value = float(item.detach().abs().amax())
                if math.isfinite(value) and (not seen or value > seen[0]):
                    seen[:] = [value]

    try:
        module = model.get_submodule(path)
    except AttributeError:
        yield seen
        return
    with module.register_forward_hook(watch):
        yield seen
