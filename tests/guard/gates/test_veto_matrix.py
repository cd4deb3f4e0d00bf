"""A refused step changes nothing: no parameter, no moment, no counter, no schedule."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from quick_ones import diagonal
from stayfinite import Guard, Policy
from tiny_training import (
    DEVICE,
    FAULTS,
    FUSED,
    NOT_FINITE,
    OPTIMIZERS,
    PRECISIONS,
    REFUSING,
    Training,
    all_finite,
    changed,
    planted,
)

CASES = [*diagonal([*OPTIMIZERS], PRECISIONS, [Policy()]), *diagonal(FUSED, PRECISIONS, [DEVICE])]
NAMES = ["-".join([*case.values[:2], case.values[2].gate]) for case in CASES]
GATED = [*((optimizer, Policy()) for optimizer in OPTIMIZERS), *((optimizer, DEVICE) for optimizer in FUSED)]


def named(*others):
    return [f"{optimizer}-{policy.gate}-{other}" for optimizer, policy in GATED for other in others]


@pytest.mark.parametrize(("optimizer", "precision", "policy"), CASES, ids=NAMES)
def test_a_vetoed_step_changes_no_bit_of_the_training_state(optimizer, precision, policy):
    training = Training(optimizer, precision, policy=policy)
    training.good(4)
    for fault in NOT_FINITE:
        training.guard.flush()
        before = training.state()
        training.bad(fault)
        training.guard.flush()
        assert training.guard.decisions[-1].refused, fault
        assert changed(before, training.state()) == [], fault
        training.good(1)
        assert changed(before, training.state()) != [], f"nothing moves after {fault}"
    training.good(2)
    training.guard.close()
    assert [d.refused for d in training.guard.decisions].count(True) == len(NOT_FINITE)
    assert all_finite(training)


@pytest.mark.parametrize(
    ("gated", "precision"), diagonal(GATED, ["fp32", "bf16-autocast"]), ids=named("fp32", "bf16-autocast")
)
def test_a_finite_spike_under_a_policy_that_refuses_it_changes_no_bit_either(gated, precision):
    optimizer, policy = gated
    training = Training(optimizer, precision, policy=REFUSING["device" if policy is DEVICE else "host"])
    before = training.settled(4)
    training.bad("spike")
    training.guard.flush()
    assert training.guard.decisions[-1].code == "loss-spike"
    assert changed(before, training.state()) == []


@pytest.mark.parametrize(
    ("gated", "fault"), diagonal(GATED, ["nan-loss", "inf-element"]), ids=named("nan-loss", "inf-element")
)
def test_training_goes_on_as_if_the_bad_steps_had_never_been(gated, fault):
    optimizer, policy = gated
    met, spared = Training(optimizer, policy=policy), Training(optimizer, policy=policy)
    for training in (met, spared):
        training.good(2)
        for _ in range(2 if training is met else 0):
            training.bad(fault)
        training.number = 10
        training.settled(3)
    assert changed(spared.state(), met.state()) == []


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "spike"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_fault_at_the_very_first_step_leaves_no_trace_on_the_host_gate(optimizer, fault):
    training = Training(optimizer)
    before = training.state()
    training.bad(fault)
    assert training.guard.decisions[-1].refused
    assert changed(before, training.state()) == []


# Fused SGD with momentum on bfloat16 weights leaves its buffers partly unwritten on the CPU (torch 2.13, also without a
# guard), so that no two runs are alike.
FUSED_CASES = [(o, p) for o in FUSED for p in PRECISIONS if not (o.startswith("SGD") and p == "bf16-weights")]


@pytest.mark.parametrize(("fused", "fault"), diagonal(FUSED_CASES, ["nan-loss", "inf-element", "last-parameter"]))
def test_a_fault_at_the_very_first_step_does_no_harm_on_the_device_gate(fused, fault):
    optimizer, precision = fused
    met = Training(optimizer, precision, policy=DEVICE)
    spared = Training(
        optimizer, precision, policy=DEVICE, init_scale=128.0
    )  # where one overflow leaves the other scaler
    met.bad(fault)
    met.number = 0
    for training in (met, spared):
        training.settled(4)
    assert changed(spared.state(), met.state()) == []


@pytest.mark.parametrize("policy", [Policy(), DEVICE], ids=["host", "device"])
@pytest.mark.parametrize("optimizer", ["AdamW-fused", "SGD-fused", "Adagrad-fused"])
def test_the_scaler_moves_exactly_as_it_would_by_itself(optimizer, policy):
    guarded, plain = (Training(optimizer, "fp16-autocast", policy=policy) for _ in range(2))
    scales = []
    for fault in [*[None] * 4, "nan-loss", None, "inf-element", "last-parameter", "inf-loss", *[None] * 4]:
        guarded.bad(fault)
        plain.plain(fault)
        assert guarded.scaler.state_dict() == plain.scaler.state_dict()
        scales.append(guarded.scaler.get_scale())
    assert min(scales) < 256 < max(scales)


@pytest.mark.parametrize("policy", [Policy(), DEVICE], ids=["host", "device"])
def test_the_scaler_falls_through_a_long_search_exactly_as_it_would_by_itself(policy):
    guarded, plain = (Training("AdamW-fused", "fp16-autocast", policy=policy, init_scale=2.0**40) for _ in range(2))
    plain.optimizer.step()  # torch warns of a schedule that moves before the optimizer ever stepped
    for _ in range(30):
        guarded.good()
        plain.plain()
        assert guarded.scaler.state_dict() == plain.scaler.state_dict()
    guarded.guard.flush()
    assert {d.code for d in guarded.guard.decisions if d.refused} == {"scale-search"}
    assert not guarded.guard.decisions[-1].refused


@pytest.mark.parametrize("policy", REFUSING.values(), ids=REFUSING)
def test_a_finite_spike_does_not_make_the_scaler_back_off(policy):
    training = Training("AdamW-fused", "fp16-autocast", policy=policy, init_scale=16.0)
    training.good(5)
    before = training.scaler.state_dict()
    assert (before["scale"], before["_growth_tracker"]) == (32, 2)
    training.bad("spike")
    training.guard.flush()
    assert training.guard.decisions[-1].code == "loss-spike"
    assert training.guard.decisions[-1].refused
    after = training.scaler.state_dict()
    assert (after["scale"], after["_growth_tracker"]) == (64, 0)  # the third finite step in a row: it grows


@pytest.mark.parametrize("policy", REFUSING.values(), ids=REFUSING)
def test_a_spike_of_the_gradient_alone_is_refused_after_the_warm_up(policy):
    training = Training("AdamW-fused", policy=policy)
    before = training.settled(24)
    weight = training.model.up.weight
    hook = weight.register_hook(lambda grad: grad * 1000)
    training.good()
    hook.remove()
    training.guard.flush()
    assert training.guard.decisions[-1].code == "gradient-spike"
    assert changed(before, training.state()) == []


@pytest.mark.parametrize("scaled", [False, True], ids=["fp32", "scaler"])
@pytest.mark.parametrize("fault", FAULTS)
def test_sparse_adam_is_refused_whole(fault, scaled):
    training = SparseTraining(scaled)
    for _ in range(4):
        training.step(None)
    before = training.state()
    training.step(fault)
    assert training.guard.decisions[-1].refused
    assert changed(before, training.state()) == []
    training.step(None)
    assert not training.guard.decisions[-1].refused
    assert all_finite(training)


class SparseTraining(Training):
    """One embedding table with sparse gradients."""

    def __init__(self, scaled: bool) -> None:
        torch.manual_seed(0)
        self.model = nn.EmbeddingBag(20, 4, mode="sum", sparse=True)
        self.optimizer = torch.optim.SparseAdam(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=16.0) if scaled else None
        policy = Policy.refuse_spikes()
        self.guard = Guard(self.model, self.optimizer, self.scheduler, self.scaler, policy=policy)

    def step(self, fault: str | None) -> None:
        rows = torch.tensor([[1, 3, 3], [5, 1, 7]])
        with planted(fault, self.model) as factor:
            self.guard.step((self.model(rows) - 1).square().mean() * factor)
