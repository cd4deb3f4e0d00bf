"""A finite step is taken however unusual it is; what follows decides whether it stays."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stayfinite import Guard, Policy
from tiny_training import OPTIMIZERS, Lines, TinyNet, Training, batch, changed, everything

QUICK = {"prove_steps": 5, "snapshot_share": 1.0, "autopsy_seconds": 0}
knows_forward = pytest.mark.parametrize("forward", [True, False], ids=["forward known", "plain loop"])
gates = pytest.mark.parametrize("gate", ["host", "device"])


class Loop:
    """Regression with noise, and what a test does to it at some steps."""

    def __init__(self, *, forward=False, gate="auto", folder=None, lr=1e-2, describe=None, **policy):
        torch.manual_seed(0)
        self.model = TinyNet()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, fused=True)
        self.console = Lines()
        self.loss = lambda pair: F.mse_loss(self.model(pair[0]), pair[1])
        self.guard = Guard(
            self.model,
            self.optimizer,
            policy=Policy(**QUICK | {"gate": gate} | policy),
            forward=self.loss if forward else None,
            run_dir=folder,
            describe=describe,
            console=self.console,
        )
        self.folder, self.forward, self.number = folder, forward, 0

    def pair(self, shift=0.0):
        self.number += 1
        x, y = batch(self.number)
        return x, y + shift

    def train(self, steps, shift=0.0, scale=1.0):
        for _ in range(steps):
            pair = self.pair(shift)
            loss = self.guard.forward(pair) if self.forward else self.loss(pair)
            self.guard.step(loss * scale)
        self.guard.flush()

    def rate(self, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def overheat(self, afterwards=1e-2):
        """Three steps at a rate that is far too high, and back."""
        self.rate(1.0)
        self.train(3)
        self.rate(afterwards)

    def events(self, kind):
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["event"] == kind]

    @property
    def actions(self):
        return [decision.action for decision in self.guard.decisions]


def test_a_guard_that_is_asked_for_nothing_changes_nothing():
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    plain = copy.deepcopy(model)
    for net, guarded in ((model, True), (plain, False)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        guard = Guard(net, optimizer, console=Lines()) if guarded else None
        for number in range(200):
            x, y = batch(number % 3)
            loss = F.mse_loss(net(x), 10 * y)  # gradients that are rightly large
            if guard is None:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            else:
                guard.step(loss)
    assert all(map(torch.equal, model.parameters(), plain.parameters()))


@pytest.mark.parametrize("optimizer", ["AdamW-plain", "SGD-foreach", "user-written", "RMSprop-plain"])
def test_a_bounded_step_is_the_step_of_a_smaller_gradient(optimizer):
    assert optimizer in OPTIMIZERS
    bounded, clipped = (Training(optimizer, max_norm=None) for _ in range(2))
    for training in (bounded, clipped):
        training.good(20)
    bounded.bad("spike")
    decision = bounded.guard.decisions[-1]
    assert (decision.action, decision.code, decision.refused) == ("bound", "unusual-gradient", False)
    clipped.plain("spike", max_norm=decision.limit)
    for one, other in zip(bounded.model.parameters(), clipped.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


@gates
@knows_forward
def test_a_rate_that_was_a_hundred_times_too_high_is_gone_back_from_with_the_evidence(forward, gate, tmp_path):
    loop = Loop(forward=forward, gate=gate, folder=tmp_path)
    loop.train(120)
    usual = [decision.signals.loss for decision in loop.guard.decisions[-20:]]
    loop.overheat()
    loop.train(30)
    assert not any(decision.refused for decision in loop.guard.decisions)
    (event,) = loop.events("rollback")
    assert event["code"] == "harm"
    assert event["to_step"] < 121 < event["from_step"] <= 140
    assert "known-good weights" in event["reason"]
    assert sum("rolled back to step" in line for line in loop.console.lines) == 1
    assert loop.optimizer.param_groups[0]["lr"] == 1e-2
    last = [decision.signals.loss for decision in loop.guard.decisions[-5:]]
    assert max(last) < 2 * max(usual)


@gates
@knows_forward
def test_a_new_phase_is_told_once_and_nothing_is_refused_or_undone(forward, gate, tmp_path):
    loop = Loop(forward=forward, gate=gate, folder=tmp_path, lr=1e-3)
    loop.train(120)
    loop.train(150, shift=5.0)
    assert not any(decision.refused for decision in loop.guard.decisions)
    assert not loop.events("rollback")
    (event,) = loop.events("new-phase")
    assert 121 < event["step"] < 140
    assert sum("new phase" in line for line in loop.console.lines) == 1


def test_comparing_with_the_known_good_weights_leaves_no_trace(tmp_path):
    loop, plain = Loop(forward=True, folder=tmp_path, lr=1e-3, bound_factor=1e9), Loop(spikes="ignore", lr=1e-3)
    for each in (loop, plain):
        each.train(120)
        each.train(60, shift=5.0)
    assert loop.events("new-phase")
    assert changed(everything(plain.model, plain.optimizer), everything(loop.model, loop.optimizer)) == []


def test_a_trial_that_is_lost_costs_its_own_step_and_nothing_else(tmp_path):
    loop, plain = Loop(folder=tmp_path, lr=1e-3, bound_factor=1e9), Loop(spikes="ignore", lr=1e-3)
    loop.train(120)
    plain.train(120)
    loop.train(40, shift=5.0)
    (trial,) = loop.events("trial")
    for number in range(40):
        if 121 + number == trial["step"] + 1:
            plain.number += 1  # the step that was tried with the known-good weights, and taken back
        else:
            plain.train(1, shift=5.0)
    assert changed(everything(plain.model, plain.optimizer), everything(loop.model, loop.optimizer)) == []


@knows_forward
def test_an_announced_phase_is_believed_at_once(forward, tmp_path):
    loop = Loop(forward=forward, folder=tmp_path, lr=1e-3)
    loop.guard.expect("other targets", step=121)
    loop.train(120)
    loop.train(60, shift=5.0)
    (event,) = loop.events("new-phase")
    assert (event["step"], event["reason"], event["expected"]) == (120, "other targets", True)
    assert "bound" not in loop.actions
    loop.guard.expect("and others again")
    loop.train(60, shift=-50.0)
    assert len(loop.events("new-phase")) == 2
    assert "bound" not in loop.actions


@pytest.mark.parametrize(
    "forward", [pytest.param(True, marks=pytest.mark.slow, id="forward known"), pytest.param(False, id="plain loop")]
)
def test_a_rare_kind_of_batch_is_learned_from(forward):
    ends = []
    for policy in ({"spikes": "ignore"}, {}):
        loop = Loop(forward=forward, lr=3e-3, **policy)
        rare = torch.randn(32, 8, generator=torch.Generator().manual_seed(1)) * 3, torch.full((32, 4), 30.0)
        for number in range(450):
            pair = rare if number % 45 == 44 else loop.pair()
            loop.guard.step(loop.guard.forward(pair) if forward else loop.loss(pair))
        ends.append(loop.loss(rare).item())
    assert not any(decision.refused for decision in loop.guard.decisions)
    assert loop.actions.count("bound")
    assert ends[1] < 1.2 * ends[0], ends


def test_a_state_saved_in_the_middle_of_a_probation_goes_on_with_it(tmp_path):
    loop = Loop(forward=True, lr=1e-3)
    loop.train(120)
    loop.train(12, shift=5.0)
    state = json.loads(json.dumps(loop.guard.state_dict()))
    assert state["memory"]["probation"]["doubt"]["step"] == 121
    other = Loop(forward=True, lr=1e-3, folder=tmp_path)
    other.model.load_state_dict(loop.model.state_dict())
    other.optimizer.load_state_dict(loop.optimizer.state_dict())
    other.guard.load_state_dict(state)
    other.number = loop.number
    other.train(80, shift=5.0)
    assert other.guard.state_dict()["memory"]["probation"]["doubt"] is None
    assert not any(decision.refused for decision in other.guard.decisions)


def test_a_checkpoint_in_the_middle_of_a_trial_is_a_state_to_resume_from(tmp_path):
    loop = Loop(folder=tmp_path, lr=1e-2)
    loop.train(120)
    loop.overheat()
    while loop.guard.state_dict()["memory"]["probation"]["trial"] is None:
        loop.train(1)
    loop.guard.checkpoint()
    loop.guard.close()
    again = Loop(folder=tmp_path, lr=1e-2)
    assert again.guard.resume() == loop.number
    probation = again.guard.state_dict()["memory"]["probation"]
    assert (probation["trial"], probation["doubt"]) == (None, None)
    again.number = loop.number
    again.train(40)
    assert max(decision.signals.loss for decision in again.guard.decisions) < 1.0


def test_the_step_that_did_harm_is_kept_and_explained(tmp_path):
    loop = Loop(forward=True, folder=tmp_path, autopsy_seconds=20)
    loop.train(120)
    loop.overheat()
    loop.train(20)
    loop.guard.close()
    assert [each.name for each in sorted((tmp_path / "incidents").iterdir())] == ["0001"]
    record = json.loads((tmp_path / "incidents/0001/incident.json").read_text())
    (event,) = loop.events("rollback")
    assert record["step"] < event["step"]
    assert "known-good" in json.dumps(record["notes"])


def test_bounded_steps_are_told_and_summed_up(tmp_path):
    loop = Loop(folder=tmp_path)
    loop.train(40)
    loop.train(1, scale=1000.0)
    loop.train(20)
    loop.guard.close()
    (event,) = loop.events("bound")
    assert (event["step"], event["code"]) == (41, "unusual-gradient")
    assert "limited to" in event["reason"]
    assert "61 steps, none refused, 0 clipped, 1 bounded" in loop.console.lines[-1]
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [each["decision"] for each in steps].count("bound") == 1


def test_what_the_loop_sets_by_itself_is_not_undone_by_going_back():
    loop = Loop(forward=True)
    loop.train(120)
    loop.overheat(5e-3)
    loop.optimizer.param_groups[0]["weight_decay"] = 0.5
    loop.train(30)
    assert sum("rolled back" in line for line in loop.console.lines) == 1
    group = loop.optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (5e-3, 0.5)
