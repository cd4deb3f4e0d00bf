"""The state is bad, or the update makes it so."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.failures.steps.record import Training, fault

COUNT = 30
POISONED = ("nan-weights", "poisoned-checkpoint")

Pair = tuple[Tensor, Tensor]


def _pairs(count: int = COUNT, columns: int = 8) -> list[Pair]:
    weights = torch.randn(columns)
    inputs = [torch.randn(16, columns) for _ in range(count)]
    return [(x, x @ weights) for x in inputs]


def _training(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Pair]) -> Training:
    def forward(batch: Pair) -> Tensor:
        return F.mse_loss(model(batch[0]).squeeze(-1), batch[1])

    return Training(model=model, forward=forward, batches=batches, optimizer=optimizer)


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))


@fault("lr-too-high", "loss-diverging", "exploding-gradient")
def rate_of_plain_descent_far_too_high() -> Training:
    """The loss grows by orders until it is infinite."""
    model = _network()
    return _training(model, torch.optim.SGD(model.parameters(), lr=5.0), _pairs())


@fault("lr-too-high", "loss-diverging", "exploding-gradient")
def momentum_that_runs_away() -> Training:
    """0.99 of the last update, and a rate a hundred times too high."""
    model = _network()
    return _training(model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.99, nesterov=True), _pairs())


@fault(*POISONED)
def checkpoint_with_a_nan_in_a_bias() -> Training:
    """One number of one tensor."""
    model = _network()
    with torch.no_grad():
        model[2].bias[17] = math.nan
    return _training(model, torch.optim.Adam(model.parameters(), lr=1e-3), _pairs(4))


@fault(*POISONED, "norm-eps")
def negative_variance_in_a_frozen_norm() -> Training:
    """Running statistics that were averaged wrongly."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    model[1].eval()
    model[1].running_var[3] = -0.7
    return _training(model, torch.optim.Adam(model.parameters(), lr=1e-3), _pairs(4))


@fault("exploding-gradient", "bad-init", "vanishing-gradient")
def recurrence_that_grows() -> Training:
    """200 steps of a linear recurrence whose matrix is 3 times the identity."""
    step, head = nn.Linear(6, 6, bias=False), nn.Linear(6, 1)
    with torch.no_grad():
        step.weight.copy_(3 * torch.eye(6))
    model = nn.ModuleDict({"step": step, "head": head})
    batches = [(torch.randn(8, 6), torch.randn(8)) for _ in range(4)]

    def forward(batch: Pair) -> Tensor:
        state = batch[0]
        for _ in range(200):
            state = step(state)
        return F.mse_loss(head(state).squeeze(-1), batch[1])

    return Training(
        model=model, forward=forward, batches=batches, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3)
    )


@fault("bad-init", "exploding-gradient", *POISONED, "hardware")
def weight_with_a_flipped_exponent() -> Training:
    """One weight is 1e38."""
    model = _network()
    with torch.no_grad():
        model[0].weight[3, 2] = 1e38
    return _training(model, torch.optim.SGD(model.parameters(), lr=1e-3), _pairs(4))


@fault("lr-too-high", "adam-eps-underflow")
def rate_of_adam_a_million_times_too_high() -> Training:
    """3e3 for 3e-3, cubed by three layers and squared by the loss."""
    model = _network()
    return _training(model, torch.optim.Adam(model.parameters(), lr=3e7), _pairs(8))
