from __future__ import annotations

import pytest
import torch

from small_training import Training, changed
from stayfinite.errors import PolicyError
from stayfinite.state.snapshots import SnapshotRing


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make(**settings: object) -> tuple[Training, SnapshotRing, Clock]:
    training, clock = Training(), Clock()
    settings = {"least_steps": 1, "prove_steps": 3, "clock": clock} | settings
    return training, SnapshotRing(training.parts, **settings), clock


def run(training: Training, ring: SnapshotRing, clock: Clock, steps: range, seconds: float = 1000.0) -> None:
    for step in steps:
        training.steps(1)
        clock.now += seconds
        ring.accepted(step)
        ring.maybe_take(step)


def test_a_snapshot_is_known_good_only_after_later_steps_were_accepted() -> None:
    training, ring, clock = make()
    ring.maybe_take(0)
    run(training, ring, clock, range(1, 3))
    assert ring.known_good() is None
    assert ring.candidate is not None
    assert ring.candidate.step == 0
    run(training, ring, clock, range(3, 4))
    assert ring.known_good().step == 0
    assert ring.candidate.step == 3
    run(training, ring, clock, range(4, 7))
    assert ring.known_good().step == 3


def test_rolling_back_gives_the_known_good_state_and_the_same_future() -> None:
    training, ring, clock = make()
    states = {}
    ring.maybe_take(0)
    for step in range(1, 8):
        training.steps(1)
        states[step] = training.everything()
        clock.now += 1000
        ring.accepted(step)
        ring.maybe_take(step)
    good = ring.known_good()
    assert good.step == 3
    with torch.no_grad():
        training.model.up.weight.fill_(torch.nan)
    ring.rollback_to(good)
    assert changed(states[3], training.everything()) == []
    assert ring.known_good() is good
    assert ring.candidate is None
    training.steps(4)
    assert changed(states[7], training.everything()) == []
    ring.rollback_to(good)
    assert changed(states[3], training.everything()) == [], "it can be rolled back to again"


def test_a_refused_step_starts_the_proof_anew_and_many_drop_the_candidate() -> None:
    _training, ring, clock = make(drop_refusals=2)
    ring.maybe_take(0)
    ring.accepted(1)
    ring.accepted(2)
    ring.refused(3)
    ring.accepted(4)
    ring.accepted(5)
    assert ring.known_good() is None
    ring.accepted(6)
    assert ring.known_good().step == 0
    clock.now += 1000
    ring.maybe_take(6)
    ring.refused(7)
    ring.accepted(8)
    ring.refused(9)
    assert ring.candidate is None
    assert ring.known_good().step == 0


def test_steps_that_were_heard_of_late_prove_nothing() -> None:
    _, ring, _ = make()
    ring.maybe_take(5)
    for step in range(1, 6):
        ring.accepted(step)
        ring.refused(step)
    ring.accepted(6)
    assert ring.known_good() is None
    assert ring.candidate is not None


def test_a_poisoned_snapshot_is_never_known_good() -> None:
    training, ring, clock = make()
    ring.maybe_take(0)
    run(training, ring, clock, range(1, 4))
    good = ring.known_good()
    ring.rollback_to(good)
    training.optimizer.state.clear()
    training.steps(1)
    training.optimizer.state[training.model.up.weight]["exp_avg_sq"][0, 0] = torch.inf
    clock.now += 1000
    ring.maybe_take(4)
    for step in range(5, 10):
        ring.accepted(step)
    assert ring.known_good() is good
    assert ring.candidate is None


def test_cost_sets_the_interval() -> None:
    _training, ring, clock = make(share=0.01)
    ring.maybe_take(0)
    assert 0 < ring.cost < 1
    assert ring.interval == pytest.approx(100 * ring.cost)
    for step in range(1, 4):
        ring.accepted(step)
    clock.now = 0.5 * ring.interval
    assert ring.maybe_take(4) is None
    clock.now = 1.01 * ring.interval
    assert ring.maybe_take(4) is not None


def test_least_steps_lie_between_snapshots() -> None:
    training, ring, clock = make(least_steps=5)
    ring.maybe_take(0)
    run(training, ring, clock, range(1, 5))
    assert ring.candidate is None
    run(training, ring, clock, range(5, 6))
    assert ring.candidate.step == 5


def test_two_copies_at_most_and_memory_that_is_read_is_left_alone() -> None:
    training, ring, clock = make()
    training.steps(1)
    ring.maybe_take(0)
    run(training, ring, clock, range(1, 30))
    state = ring.known_good().state
    assert ring.nbytes <= 2 * (state.nbytes + 64 * len(state.tensors)), "two copies and their alignment"
    held = ring.take(40)
    held.state.memory.hold()
    for step in range(41, 44):
        ring.accepted(step)
    assert ring.known_good() is held
    clock.now += 1e6
    assert ring.maybe_take(50) is not None, "the older one's memory is free"
    for step in range(51, 54):
        ring.accepted(step)
    clock.now += 1e6
    assert ring.known_good().step == 50
    assert ring.maybe_take(60) is None, "a checkpoint still reads the other"
    held.state.memory.release()
    assert ring.maybe_take(61) is not None


def test_taking_now_replaces_the_candidate_and_spares_the_known_good() -> None:
    training, ring, clock = make()
    ring.maybe_take(0)
    run(training, ring, clock, range(1, 4))
    assert (ring.known_good().step, ring.candidate.step) == (0, 3)
    ring.take(4)
    assert (ring.known_good().step, ring.candidate.step) == (0, 4)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(PolicyError, match="keep=1"):
        SnapshotRing(Training().parts, keep=1)
