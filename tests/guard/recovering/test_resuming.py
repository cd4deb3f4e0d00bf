"""A guard that continues from a saved state decides as the one that went on."""

from __future__ import annotations

import copy
import json
from itertools import product

import pytest

from quick_ones import diagonal
from stayfinite import Policy, TrainingDiverged
from tiny_training import GATES, Training, changed

both_gates = pytest.mark.parametrize("gate", ["host", "device"])
PLAN = [None] * 5 + [
    "nan-loss",
    None,
    "spike",
    None,
    "spike",
    "spike",
    "spike",
    None,
    "inf-element",
    None,
    "spike",
    None,
]


def resumed_from(training: Training, **settings) -> Training:
    """A new process, as it were: everything is built again and loaded, the guard's state through JSON."""
    state = json.loads(json.dumps(training.guard.state_dict()))
    after = Training("AdamW-fused", training.precision, **settings)
    after.model.load_state_dict(copy.deepcopy(training.model.state_dict()))
    after.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))
    after.scheduler.load_state_dict(copy.deepcopy(training.scheduler.state_dict()))
    if after.scaler is not None:
        after.scaler.load_state_dict(training.scaler.state_dict())
    after.guard.load_state_dict(state)
    after.number = training.number
    return after


@pytest.mark.parametrize(
    ("at", "run"), diagonal([0, 3, 6, 9, 11, 13], [*product(["fp32", "fp16-autocast"], ["host", "device"])])
)
def test_a_resumed_run_takes_the_same_decisions(at, run):
    precision, gate = run
    settings = {"policy": Policy(gate=gate, level_change_after=3), "init_scale": 16.0}
    through = Training("AdamW-fused", precision, **settings)
    for fault in PLAN[:at]:
        through.bad(fault)
    after = resumed_from(through, **settings)
    for training in (through, after):
        for fault in PLAN[at:]:
            training.bad(fault)
        training.guard.flush()
    rest = len(PLAN) - at
    mine, theirs = ([(d.step, d.action, d.code, d.reason) for d in t.guard.decisions] for t in (after, through))
    assert mine == theirs[-rest:]
    assert changed(through.state(), after.state()) == []
    assert through.guard.state_dict() == after.guard.state_dict()


@both_gates
def test_the_budget_is_not_forgiven_by_a_restart(gate):
    settings = {"policy": Policy(gate=gate, max_vetoes=3)}
    training = Training("AdamW-fused", **settings)
    training.good(2)
    for _ in range(3):
        training.bad()
    after = resumed_from(training, **settings)
    with pytest.raises(TrainingDiverged) as caught:
        after.bad_ones(["nan-loss"])
    assert (caught.value.code, caught.value.step) == ("vetoes-in-total", 6)


@pytest.mark.parametrize("first", ["host", "device"])
def test_a_state_may_move_from_one_gate_to_the_other(first):
    second = "device" if first == "host" else "host"
    training = Training("AdamW-fused", policy=Policy(gate=first))
    training.good(20)
    after = resumed_from(training, policy=Policy(gate=second))
    for each in (training, after):
        each.bad("spike")
        each.good(2)
        each.guard.flush()
    assert [d.code for d in training.guard.decisions][-3:] == [d.code for d in after.guard.decisions]
    assert changed(training.state(), after.state()) == []


@both_gates
def test_a_state_loads_under_a_policy_with_a_smaller_window(gate):
    training = Training("AdamW-fused", policy=Policy.refuse_spikes(gate=gate))
    training.good(20)
    after = resumed_from(training, policy=Policy.refuse_spikes(gate=gate, window=8, warmup=4))
    after.bad("spike")
    after.good(3)
    after.guard.flush()
    assert [d.refused for d in after.guard.decisions] == [True, False, False, False]


def test_a_saved_state_is_not_changed_by_what_comes_after():
    for policy in GATES.values():
        training = Training("AdamW-fused", policy=policy)
        training.good(3)
        state = training.guard.state_dict()
        before = json.dumps(state)
        training.good(3)
        training.bad()
        training.guard.flush()
        assert json.dumps(state) == before
