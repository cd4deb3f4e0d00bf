"""A training whose steps are judged by our own kernel, in Triton's interpreter, is the one that torch judges."""

import random

import pytest
import torch
from rich.console import Console
from torch import nn

from stayfinite import Guard, Policy
from stayfinite.guard.gates import gates

pytest.importorskip("triton", reason="the kernel needs Triton")
if torch.cuda.is_available():
    pytest.skip("here the kernel is compiled; see test_on_cuda.py", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def train(seed, *, clip):
    torch.manual_seed(seed)
    faults = random.Random(seed)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    policy = Policy(
        gate="device",
        snapshots=False,
        window=16,
        warmup=4,
        max_vetoes_in_a_row=50,
        spikes="refuse" if clip else "bound",
    )
    guard = Guard(model, optimizer, policy=policy, max_norm=0.5 if clip else None, console=Console(quiet=True))
    guard._setup.fold_clip = True
    for _ in range(60):
        loss = model(torch.randn(8, 6)).square().mean()
        kind = faults.random()
        guard.step(loss * (float("nan") if kind < 0.06 else 1e5 if kind < 0.12 else 0.0 if kind < 0.15 else 1.0))
    guard.flush()
    decisions = [(decision.step, decision.action, decision.code) for decision in guard.decisions]
    return decisions, list(model.state_dict().values()), guard._after.gate._spikes


@pytest.mark.parametrize(("seed", "clip"), [(1, True), pytest.param(3, False, marks=pytest.mark.slow)])
def test_decisions_and_weights_are_the_same(seed, clip, monkeypatch):
    outcomes = []
    for by_kernel in (True, False):
        monkeypatch.setattr(gates, "kernels_run_on", lambda _, there=by_kernel: there)
        decisions, weights, spikes = train(seed, clip=clip)
        assert spikes._by_kernel is by_kernel
        outcomes.append((decisions, weights))
    (decisions, weights), (expected, other) = outcomes
    assert decisions == expected
    assert sum(action == "veto" for _, action, _ in decisions) > (3 if clip else 1)
    assert clip or sum(action == "bound" for _, action, _ in decisions) > 1
    assert all(map(torch.equal, weights, other))
