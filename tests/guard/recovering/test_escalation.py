"""Escalation of precision: a model that overflows in fp16 goes on in bf16 and learns."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from stayfinite import Action, Guard, Policy, TrainingDiverged
from tiny_training import Lines

QUICK = {"max_vetoes_in_a_row": 2, "patience": 1, "scale_search": 2}


class Loud(nn.Module):
    """Its hidden numbers are beyond 65504, the largest of fp16, and nothing is wrong with them."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.down = nn.Linear(8, 1)
        with torch.no_grad():
            self.up.weight.mul_(3e5)
            self.down.weight.mul_(1e-5)

    def forward(self, x):
        return self.down(self.up(x))


def build(folder=None, **settings):
    torch.manual_seed(0)
    model = Loud()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    policy = Policy(precision="fp16", **QUICK, **settings)
    x = torch.randn(32, 8)
    guard = Guard(
        model, optimizer, scaler=scaler, max_norm=1.0, policy=policy, run_dir=folder, console=Lines(),
        forward=lambda y: (model(x).float() - y).square().mean(),
    )  # fmt: skip
    return guard, x.sum(1, keepdim=True)


def test_fp16_overflow_goes_up_to_bf16_and_learns(tmp_path):
    guard, y = build(tmp_path)
    assert "precision fp16" in guard.describe()
    for _ in range(30):
        guard.step(guard.forward(y))
    actions = [decision.action for decision in guard.decisions]
    assert actions.index(Action.CUT) < actions.index(Action.ESCALATE)
    after = [d.signals.loss for d in guard.decisions[actions.index(Action.ESCALATE) + 1 :]]
    assert len(after) > 5
    assert after[-1] < after[0]
    assert "precision bf16" in guard.describe()
    assert "fp16 scaler" not in guard.describe()
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (event,) = [each for each in events if each["event"] == "escalate"]
    assert (event["from_precision"], event["to_precision"]) == ("fp16", "bf16")


def test_a_resumed_run_stays_in_the_precision_it_has_reached(tmp_path):
    guard, y = build(tmp_path)
    for _ in range(20):
        guard.step(guard.forward(y))
    guard.checkpoint()
    guard.close()
    again, y = build(tmp_path)
    assert again.resume() == 20
    assert "precision bf16" in again.describe()
    again.step(again.forward(y))
    assert not again.decisions[-1].refused
    assert again.decisions[-1].signals.loss_scale is None


def test_escalation_has_a_budget():
    guard, y = build(max_escalations=0)

    def train():
        for _ in range(30):
            guard.step(guard.forward(y))

    with pytest.raises(TrainingDiverged):
        train()


def test_without_a_precision_in_the_policy_autocast_is_the_loops_own():
    model = nn.Linear(4, 4)
    guard = Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), console=Lines())
    with guard.autocast():
        assert model(torch.ones(1, 4)).dtype is torch.float32
