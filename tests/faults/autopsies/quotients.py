"""Divisions by a length, a spread or a number that is zero."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, cross_entropy, squared_error
from faults.autopsies.record import SINGULAR, Step, a_step, fault


@fault(cause=(*SINGULAR, "bad-data-row"), operator="aten.div", rows=1)
def divergence_from_a_zero_chance() -> Step:
    model = Regressor(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        p = torch.softmax(model(batch["x"]), dim=-1)
        ratio = p / batch["teacher"]  # planted here
        return (p * ratio.log()).sum(-1).mean()

    teacher = torch.softmax(torch.randn(5, 4), dim=-1)
    teacher[1] = torch.tensor([0.0, 0.5, 0.5, 0.0])
    return a_step(model, forward, {"x": torch.randn(5, 5), "teacher": teacher})


@fault(cause=(*SINGULAR, "bad-data-row"), operator="aten.div", rows=2)
def direction_of_a_zero_vector() -> Step:
    model = nn.Linear(5, 4, bias=False)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        vectors = model(batch["x"])
        directions = vectors / vectors.norm(dim=-1, keepdim=True)  # planted here
        return (directions @ directions.T).pow(2).mean()

    x = torch.randn(6, 5)
    x[2] = 0
    return a_step(model, forward, {"x": x})


@fault(cause=(*SINGULAR, "constant-feature"), operator="aten.div", module="0")
def standardising_a_constant_feature() -> Step:
    class Standardise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - x.mean(0)) / x.std(0)  # planted here

    model = nn.Sequential(Standardise(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(6, 4)
    x[:, 1] = 2.5

    forward = squared_error(model)

    return a_step(model, forward, {"x": x, "y": torch.randn(6)})


@fault(cause=(*SINGULAR, "grpo-zero-advantage", "constant-feature"), operator="aten.div")
def advantages_of_equal_rewards() -> Step:
    model = Regressor(outputs=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        rewards = batch["rewards"].view(2, 4)
        advantages = (rewards - rewards.mean(1, keepdim=True)) / rewards.std(1, keepdim=True)  # planted here
        chosen = model(batch["x"]).log_softmax(-1).gather(1, batch["action"][:, None]).squeeze(-1)
        return -(advantages.view(-1) * chosen).mean()

    rewards = torch.tensor([1.0, 0.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    batch = {"x": torch.randn(8, 5), "rewards": rewards, "action": torch.randint(0, 3, (8,))}
    return a_step(model, forward, batch)


@fault(cause=(*SINGULAR, "norm-eps"), operator="aten.rsqrt", module="1", rows=4)
def inverse_root_of_a_zero_variance() -> Step:
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            centred = x - x.mean(-1, keepdim=True)
            return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True))  # planted here

    model = nn.Sequential(nn.Linear(5, 8, bias=False), Norm(), nn.Linear(8, 1))

    forward = squared_error(model)

    x = torch.randn(6, 5)
    x[4] = 0
    return a_step(model, forward, {"x": x, "y": torch.randn(6)})


@fault(cause=(*SINGULAR, "label-imbalance"), operator="aten.reciprocal")
def inverse_of_a_frequency_of_zero() -> Step:
    model = Regressor(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        counts = torch.bincount(batch["y"], minlength=4)
        weights = counts.sum() * counts.float().reciprocal()  # planted here
        each = F.cross_entropy(model(batch["x"]), batch["y"], reduction="none")
        return (each * weights[batch["y"]]).mean() + 1e-3 * (weights * model.head.bias.abs()).sum()

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.tensor([0, 1, 3, 1, 0, 3])})


@fault(cause=SINGULAR, operator="aten.div")
def temperature_of_zero() -> Step:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 4)
            self.temperature = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return torch.div(self.linear(x), self.temperature)  # planted here

    model = Head()
    return a_step(model, cross_entropy(model), {"x": torch.randn(6, 5), "y": torch.randint(0, 4, (6,))})


@fault(cause=(*SINGULAR, "excess-dropout"), operator="aten.div", module="1")
def dropout_that_takes_everything() -> Step:
    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout(0.7)

        def forward(self, x: Tensor) -> Tensor:
            x = self.dropout(x)
            return x / x.pow(2).sum(-1, keepdim=True).sqrt()  # planted here

    model = nn.Sequential(nn.Linear(5, 3), Unit(), nn.Linear(3, 1))
    torch.manual_seed(5)
    return a_step(model, squared_error(model), {"x": torch.randn(8, 5), "y": torch.randn(8)})
