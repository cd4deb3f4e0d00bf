from __future__ import annotations

import pytest
import torch

from small_training import Training, changed
from stayfinite.errors import PolicyError
from stayfinite.state.snapshots import SnapshotRing


def make(**settings: int) -> tuple[Training, SnapshotRing]:
    training = Training()
    return training, SnapshotRing(training.parts, **{"prove_steps": 3} | settings)


def run(training: Training, ring: SnapshotRing, steps: range) -> None:
    """Train, with a new snapshot as soon as the last one is proved."""
    for step in steps:
        training.steps(1)
        ring.accepted(step)
        if ring.candidate is None:
            ring.take(step)


def test_a_snapshot_is_known_good_only_after_later_steps_were_accepted() -> None:
    training, ring = make()
    ring.take(0)
    run(training, ring, range(1, 3))
    assert ring.known_good() is None
    assert ring.candidate is not None
    assert ring.candidate.step == 0
    run(training, ring, range(3, 4))
    assert ring.known_good().step == 0
    assert ring.candidate.step == 3
    run(training, ring, range(4, 7))
    assert ring.known_good().step == 3


def test_rolling_back_gives_the_known_good_state_and_the_same_future() -> None:
    training, ring = make()
    states = {}
    ring.take(0)
    for step in range(1, 8):
        training.steps(1)
        states[step] = training.everything()
        ring.accepted(step)
        if ring.candidate is None:
            ring.take(step)
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
    _training, ring = make()
    ring.take(0)
    ring.accepted(1)
    ring.accepted(2)
    ring.refused(3)
    ring.accepted(4)
    ring.accepted(5)
    assert ring.known_good() is None
    ring.accepted(6)
    assert ring.known_good().step == 0
    ring.take(6)
    ring.refused(7)
    ring.accepted(8)
    ring.refused(9)
    assert ring.candidate is not None
    ring.refused(10)
    assert ring.candidate is None
    assert ring.known_good().step == 0


def test_steps_that_were_heard_of_late_prove_nothing() -> None:
    _, ring = make()
    ring.take(5)
    for step in range(1, 6):
        ring.accepted(step)
        ring.refused(step)
    ring.accepted(6)
    assert ring.known_good() is None
    assert ring.candidate is not None


def test_a_poisoned_snapshot_is_never_known_good() -> None:
    training, ring = make()
    ring.take(0)
    run(training, ring, range(1, 4))
    good = ring.known_good()
    ring.rollback_to(good)
    training.optimizer.state.clear()
    training.steps(1)
    training.optimizer.state[training.model.up.weight]["exp_avg_sq"][0, 0] = torch.inf
    ring.take(4)
    for step in range(5, 10):
        ring.accepted(step)
    assert ring.known_good() is good
    assert ring.candidate is None


def test_what_a_snapshot_has_cost_is_known() -> None:
    _, ring = make()
    assert ring.cost == 0
    ring.take(0)
    assert ring.cost > 0


def test_two_copies_at_most_and_memory_that_is_read_is_left_alone() -> None:
    training, ring = make()
    training.steps(1)
    ring.take(0)
    run(training, ring, range(1, 30))
    state = ring.known_good().state
    assert ring.nbytes <= 2 * (state.nbytes + 64 * len(state.tensors)), "two copies and their alignment"
    held = ring.take(40)
    held.state.memory.hold()
    for step in range(41, 44):
        ring.accepted(step)
    assert ring.known_good() is held
    newer = ring.take(50)
    assert newer.state.memory is not held.state.memory, "the older one's memory is free; this one is still read"
    held.state.memory.release()


def test_taking_now_replaces_the_candidate_and_spares_the_known_good() -> None:
    training, ring = make()
    ring.take(0)
    run(training, ring, range(1, 4))
    assert (ring.known_good().step, ring.candidate.step) == (0, 3)
    ring.take(4)
    assert (ring.known_good().step, ring.candidate.step) == (0, 4)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(PolicyError, match="prove_steps=0"):
        SnapshotRing(Training().parts, prove_steps=0)
