from __future__ import annotations

import pytest

from stayfinite.core.keeping import FIRST_STEPS, LEAST_STEPS, Agreement, CheckpointCadence, SnapshotCadence, settle
from stayfinite.core.policy import Policy


def alone(agreement: Agreement):
    return settle(agreement, lambda number: number)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def next_due(cadence: SnapshotCadence, after: int) -> int:
    return next(step for step in range(after + 1, after + 100_000) if cadence.due(step))


def settled(cost: float, *, share: float = 0.01, step_seconds: float = 1.0) -> tuple[SnapshotCadence, int]:
    """A cadence that has taken three snapshots, and the step of the last one."""
    clock = Clock()
    cadence = SnapshotCadence(share, clock)
    step = 1
    for _ in range(3):
        clock.now = step * step_seconds
        alone(cadence.took(step, cost))
        step = next_due(cadence, step)
    return cadence, 1 + 2 * FIRST_STEPS


def test_the_first_snapshot_is_due_at_once_and_the_first_ones_do_not_set_the_pace():
    cadence = SnapshotCadence(0.01, Clock())
    assert cadence.due(1)
    alone(cadence.took(1, cost=1000.0))
    assert next_due(cadence, 1) == 1 + FIRST_STEPS


@pytest.mark.parametrize(("cost", "share", "steps"), [(0.5, 0.01, 50), (2.0, 0.01, 200), (2.0, 0.1, 20)])
def test_snapshots_come_as_often_as_their_share_of_the_time_allows(cost: float, share: float, steps: int):
    cadence, last = settled(cost, share=share)
    assert next_due(cadence, last) == last + steps


def test_however_cheap_they_are_a_few_steps_lie_between_them():
    cadence, last = settled(1e-9)
    assert next_due(cadence, last) == last + LEAST_STEPS


def test_what_a_snapshot_has_cost_after_all_puts_the_next_one_off():
    cadence, last = settled(0.5)
    alone(cadence.proved(3.0))
    assert next_due(cadence, last) == last + 300
    alone(cadence.proved(0.1))
    assert next_due(cadence, last) == last + 300, "and never brings it forward"


def test_a_snapshot_that_was_of_no_use_is_followed_at_once():
    cadence, last = settled(2.0)
    assert not cadence.outdated
    cadence.at_once()
    assert cadence.outdated
    assert cadence.due(last + 1)


def test_a_checkpoint_is_due_after_its_steps_or_its_minutes():
    clock = Clock()
    cadence = CheckpointCadence(Policy(checkpoint_steps=100, checkpoint_minutes=5), first=True, many=False, clock=clock)
    assert not alone(cadence.due(99))
    assert alone(cadence.due(100))
    clock.now = 300.0
    assert alone(cadence.due(1))
    cadence.saved(1)
    assert not alone(cadence.due(100))
