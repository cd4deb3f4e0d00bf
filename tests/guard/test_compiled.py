"""torch.compile of the model and of the optimizer's step, under the gate that decides on the device."""

import copy

import pytest
import torch
from rich.console import Console
from torch import nn

from stayfinite import Guard, Policy


@pytest.fixture(autouse=True)
def _forget_what_was_compiled():
    yield
    torch._dynamo.reset()


class Training:
    def __init__(self, *, model=False, step=False, fold=True):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        self.forward = torch.compile(self.model, backend="aot_eager") if model else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=torch.tensor(1e-2), fused=True)
        if step:
            self.optimizer.step = torch.compile(self.optimizer.step, backend="eager")
        policy = Policy(gate="device", snapshots=False)
        self.guard = Guard(self.forward, self.optimizer, max_norm=0.05, policy=policy, console=Console(quiet=True))
        self.guard._setup.fold_clip = fold

    def step(self, number, factor=1.0):
        rows = torch.randn(32, 8, generator=torch.Generator().manual_seed(number))
        self.guard.step(self.forward(rows).square().mean() * factor)

    def everything(self):
        return copy.deepcopy([self.model.state_dict(), self.optimizer.state_dict()["state"]])


COMPILED = {"model": {"model": True}, "optimizer": {"step": True}, "both": {"model": True, "step": True}}


@pytest.mark.parametrize("compiled", COMPILED.values(), ids=COMPILED)
def test_what_is_compiled_trains_as_what_is_not_and_is_refused_as_well(compiled):
    plain, other = Training(), Training(**compiled)
    for training in (plain, other):
        for number in range(12):
            training.step(number)
        training.guard.flush()
        before = training.everything()
        training.step(12, factor=float("nan"))
        training.guard.flush()
        assert training.guard.decisions[-1].refused
        torch.testing.assert_close(training.everything(), before, rtol=0, atol=0)
        training.step(13)
        training.guard.flush()
        assert not training.guard.decisions[-1].refused
    torch.testing.assert_close(other.everything(), plain.everything(), rtol=1e-5, atol=1e-7)
