"""A cut of the learning rate: for a while, unseen by the schedule, and gone without a trace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stayfinite import Action, Guard, Policy
from stayfinite.guard.gates.schedule import LearningRateCut
from tiny_training import Lines, Training

POLICY = Policy(max_vetoes_in_a_row=1, cut_factor=0.1, cut_steps=4, snapshots=False)


def test_a_cut_holds_and_then_ramps_back():
    cut = LearningRateCut(POLICY)
    assert cut.factor == 1
    cut.begin()
    factors = []
    for _ in range(9):
        factors.append(cut.factor)
        cut.advance()
    assert factors == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.1, 0.325, 0.55, 0.775, 1.0])


@pytest.mark.parametrize("tensor", [False, True], ids=["number", "tensor"])
def test_the_optimizer_steps_at_the_cut_rate_and_the_schedule_never_sees_it(tensor):
    weight = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(weight.parameters(), lr=torch.tensor(0.5) if tensor else 0.5)
    cut = LearningRateCut(POLICY)
    cut.begin()
    weight(torch.ones(1, 1)).sum().backward()
    before = weight.weight.item()
    with cut.applied(optimizer):
        optimizer.step()
    assert before - weight.weight.item() == pytest.approx(0.05)
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("gate", ["host", "device"])
def test_vetoes_that_do_not_help_lead_to_a_cut(gate):
    training = Training("AdamW-fused", policy=Policy(**POLICY.to_json() | {"gate": gate}))
    training.good(3)
    training.bad_ones(["nan-loss"] * 2)
    assert training.guard.decisions[-1].action is Action.CUT
    assert any("learning rate cut to 0.1x for 4 steps" in line for line in training.console.lines)
    before = [p.detach().clone() for p in training.model.parameters()]
    training.settled(1)
    moved = max(float((p.detach() - q).abs().max()) for p, q in zip(training.model.parameters(), before, strict=True))
    rate = training.optimizer.param_groups[0]["lr"]
    assert 0 < moved < 0.3 * rate
    training.good(10)
    assert training.guard.state_dict()["cut"] == {"taken": None}


def test_a_cut_goes_on_after_a_resume():
    one = Training(policy=POLICY)
    one.good(3)
    one.bad_ones(["nan-loss"] * 2)
    one.good(2)
    saved = one.guard.state_dict()
    assert saved["cut"] == {"taken": 2}
    model = nn.Linear(2, 2)
    other = Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), policy=POLICY, console=Lines())
    other.load_state_dict(saved)
    assert other.state_dict() == saved
