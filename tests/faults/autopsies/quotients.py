"""Divisions by a length, a spread or a number that is zero."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor
from faults.autopsies.record import SINGULAR, Planted, a_step, fault


@fault
def divergence_from_a_zero_chance() -> Planted:
    model = Regressor(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        p = torch.softmax(model(batch["x"]), dim=-1)
        ratio = p / batch["teacher"]  # planted here
        return (p * ratio.log()).sum(-1).mean()

    teacher = torch.softmax(torch.randn(5, 4), dim=-1)
    teacher[1] = torch.tensor([0.0, 0.5, 0.5, 0.0])
    return Planted(
        step=a_step(model, forward, {"x": torch.randn(5, 5), "teacher": teacher}),
        cause=(*SINGULAR, "bad-data-row"), operator=("aten.div",), rows=(1,),
    )  # fmt: skip


@fault
def direction_of_a_zero_vector() -> Planted:
    model = nn.Linear(5, 4, bias=False)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        vectors = model(batch["x"])
        directions = vectors / vectors.norm(dim=-1, keepdim=True)  # planted here
        return (directions @ directions.T).pow(2).mean()

    x = torch.randn(6, 5)
    x[2] = 0
    return Planted(
        step=a_step(model, forward, {"x": x}), cause=(*SINGULAR, "bad-data-row"), operator=("aten.div",), rows=(2,)
    )


@fault
def standardising_a_constant_feature() -> Planted:
    class Standardise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - x.mean(0)) / x.std(0)  # planted here

    model = nn.Sequential(Standardise(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(6, 4)
    x[:, 1] = 2.5

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])

    return Planted(
        step=a_step(model, forward, {"x": x, "y": torch.randn(6)}),
        cause=(*SINGULAR, "constant-feature"), operator=("aten.div",), module=("0",),
    )  # fmt: skip


@fault
def advantages_of_equal_rewards() -> Planted:
    model = Regressor(outputs=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        rewards = batch["rewards"].view(2, 4)
        advantages = (rewards - rewards.mean(1, keepdim=True)) / rewards.std(1, keepdim=True)  # planted here
        chosen = model(batch["x"]).log_softmax(-1).gather(1, batch["action"][:, None]).squeeze(-1)
        return -(advantages.view(-1) * chosen).mean()

    rewards = torch.tensor([1.0, 0.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    batch = {"x": torch.randn(8, 5), "rewards": rewards, "action": torch.randint(0, 3, (8,))}
    return Planted(
        step=a_step(model, forward, batch),
        cause=(*SINGULAR, "grpo-zero-advantage", "constant-feature"),
        operator=("aten.div",),
    )


@fault
def inverse_root_of_a_zero_variance() -> Planted:
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            centred = x - x.mean(-1, keepdim=True)
            return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True))  # planted here

    model = nn.Sequential(nn.Linear(5, 8, bias=False), Norm(), nn.Linear(8, 1))

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])

    x = torch.randn(6, 5)
    x[4] = 0
    return Planted(
        step=a_step(model, forward, {"x": x, "y": torch.randn(6)}),
        cause=(*SINGULAR, "norm-eps"), operator=("aten.rsqrt",), module=("1",), rows=(4,),
    )  # fmt: skip


@fault
def inverse_of_a_frequency_of_zero() -> Planted:
    model = Regressor(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        counts = torch.bincount(batch["y"], minlength=4)
        weights = counts.sum() * counts.float().reciprocal()  # planted here
        each = F.cross_entropy(model(batch["x"]), batch["y"], reduction="none")
        return (each * weights[batch["y"]]).mean() + 1e-3 * (weights * model.head.bias.abs()).sum()

    return Planted(
        step=a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.tensor([0, 1, 3, 1, 0, 3])}),
        cause=(*SINGULAR, "label-imbalance"), operator=("aten.reciprocal",),
    )  # fmt: skip


@fault
def temperature_of_zero() -> Planted:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 4)
            self.temperature = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return torch.div(self.linear(x), self.temperature)  # planted here

    model = Head()
    return Planted(
        step=a_step(
            model, lambda batch: F.cross_entropy(model(batch["x"]), batch["y"]),
            {"x": torch.randn(6, 5), "y": torch.randint(0, 4, (6,))},
        ),
        cause=SINGULAR, operator=("aten.div",),
    )  # fmt: skip


@fault
def dropout_that_takes_everything() -> Planted:
    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout(0.7)

        def forward(self, x: Tensor) -> Tensor:
            x = self.dropout(x)
            return x / x.pow(2).sum(-1, keepdim=True).sqrt()  # planted here

    model = nn.Sequential(nn.Linear(5, 3), Unit(), nn.Linear(3, 1))
    torch.manual_seed(5)
    return Planted(
        step=a_step(
            model, lambda batch: F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"]),
            {"x": torch.randn(8, 5), "y": torch.randn(8)},
        ),
        cause=(*SINGULAR, "excess-dropout"), operator=("aten.div",), module=("1",),
    )  # fmt: skip
