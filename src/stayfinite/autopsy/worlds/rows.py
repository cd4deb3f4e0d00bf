"""Find bad rows of a batch by bisection, as long as the step stays bad."""

from __future__ import annotations

from collections.abc import Callable

from stayfinite.autopsy.steps.batch_parts import batch_size, take_rows
from stayfinite.autopsy.steps.step import Outcome, Step
from stayfinite.autopsy.worlds.worlds import World

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
