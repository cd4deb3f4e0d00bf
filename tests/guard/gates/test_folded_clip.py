"""Clipping that is left to the fused optimizer: the same training but for the last bit, and a veto is still a veto."""

import copy
from importlib.util import find_spec

import pytest
import torch
from rich.console import Console
from torch import nn

from quick_ones import diagonal
from stayfinite import Guard, Policy
from stayfinite.measure.spikes import DeviceSpikes

INTERPRETED = pytest.mark.skipif(
    find_spec("triton") is None or torch.cuda.is_available(), reason="needs Triton's interpreter"
)
OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True, amsgrad=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-2, fused=True),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1, fused=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, fused=True),
}


class Training:
    def __init__(self, optimizer="AdamW", *, fold, scaled=False, max_norm=0.05, dtype=torch.float32, **policy):
        torch.manual_seed(0)
        self.dtype = dtype
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0) if scaled else None
        policy = Policy(**{"gate": "device", "snapshots": False} | policy)
        console = Console(quiet=True)
        self.guard = Guard(
            self.model, self.optimizer, scaler=self.scaler, max_norm=max_norm, policy=policy, console=console
        )
        self.guard._setup.fold_clip = fold
        self.divided = []
        self.optimizer.register_step_pre_hook(
            lambda optimizer, *_: self.divided.append(copy.deepcopy(getattr(optimizer, "grad_scale", None)))
        )

    def run(self, steps, first=0):
        for number in range(first, first + steps):
            rows = torch.randn(32, 8, generator=torch.Generator().manual_seed(number)).to(self.dtype)
            self.guard.step(self.model(rows).float().square().mean())
        self.guard.flush()

    def everything(self):
        return copy.deepcopy([self.model.state_dict(), self.optimizer.state_dict()])


@pytest.mark.parametrize(("optimizer", "scaled"), diagonal([*OPTIMIZERS], [False, True]))
def test_the_optimizer_that_divides_ends_where_the_clipped_one_does(optimizer, scaled):
    folded, clipped = (Training(optimizer, fold=fold, scaled=scaled) for fold in (True, False))
    for training in (folded, clipped):
        training.run(30)
    assert all(divisor is not None for divisor in folded.divided)
    assert all(divisor is None for divisor in clipped.divided)
    assert max(float(divisor) for divisor in folded.divided) > 2
    for one, other in zip(folded.model.parameters(), clipped.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert folded.guard.gradient_norms == pytest.approx(clipped.guard.gradient_norms, rel=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_refused_step_changes_no_bit(optimizer, bad):
    training = Training(optimizer, fold=True)
    training.run(20)
    before = training.everything()
    training.guard.step(training.model(torch.ones(4, 8)).square().mean() * bad)
    training.guard.flush()
    assert training.guard.decisions[-1].refused
    torch.testing.assert_close(training.everything(), before, rtol=0, atol=0)


def test_gradients_below_the_norm_are_left_as_they_are():
    folded, clipped = (Training(fold=fold, max_norm=1e6) for fold in (True, False))
    for training in (folded, clipped):
        training.run(10)
    assert {float(divisor) for divisor in folded.divided} == {1.0}
    torch.testing.assert_close(folded.everything(), clipped.everything(), rtol=0, atol=0)


def test_without_a_norm_to_clip_to_nothing_is_divided_unless_spikes_are_bounded():
    training = Training(fold=True, max_norm=None, spikes="ignore")
    training.run(3)
    assert training.divided == [None] * 3
    training = Training(fold=True, max_norm=None)
    training.run(3)
    assert training.divided == [1.0] * 3


@pytest.mark.parametrize(("optimizer", "fold"), diagonal([*OPTIMIZERS], [True, False]))
def test_an_unusual_gradient_is_bounded_on_the_device_as_it_is_on_the_host(optimizer, fold):
    ends = []
    for gate in ("device", "host"):
        training = Training(optimizer, fold=fold and gate == "device", max_norm=None, gate=gate)
        training.run(30)
        rows = torch.randn(32, 8, generator=torch.Generator().manual_seed(99))
        training.guard.step(training.model(rows).square().mean() * 1e6)
        training.run(3, first=31)
        decision = training.guard.decisions[30]
        assert (decision.action, decision.refused) == ("bound", False)
        ends.append((decision.limit, *training.model.parameters()))
    (limit, *weights), (expected, *others) = ends
    assert limit == pytest.approx(expected, rel=1e-5)
    for one, other in zip(weights, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_what_a_float32_cannot_divide_exactly_is_clipped_in_place():
    training = Training(fold=True, dtype=torch.float64)
    training.run(3)
    assert training.divided == [None] * 3


@pytest.mark.parametrize("by_kernel", [False, pytest.param(True, marks=INTERPRETED)])
@pytest.mark.parametrize(("max_norm", "divisor"), [(1.5, 4.0), (6.1, 1.0), (None, 1.0)])
def test_the_divisor_is_the_clip_factor_turned_round(by_kernel, max_norm, divisor):
    device = DeviceSpikes(Policy(), torch.device("cpu"), max_norm=max_norm, by_kernel=by_kernel)
    device.judge(torch.tensor(1.0), torch.tensor(6.0))
    assert device._by_kernel is by_kernel
    assert device.divisor.item() == pytest.approx(divisor, rel=1e-6)
    assert device.divisor.item() >= 1.0
