"""Exponentials, powers and angles of what they are not made for."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, Sequences
from faults.autopsies.record import SINGULAR, Step, a_step, fault

NAIVE = ("naive-exp",)


@fault(cause=NAIVE, operator="aten.exp", rows=2)
def logarithm_of_a_sum_of_exponentials_by_hand() -> Step:
    model = Regressor(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["x"]) + batch["bonus"]
        total = torch.log(torch.exp(logits).sum(-1))  # planted here
        return (total - logits.gather(1, batch["y"][:, None]).squeeze(-1)).mean()

    bonus = torch.zeros(6, 4)
    bonus[2, 1] = 120.0
    return a_step(model, forward, {"x": torch.randn(6, 5), "bonus": bonus, "y": torch.tensor([0, 1, 3, 2, 1, 0])})


@fault(cause=NAIVE, operator="aten.exp")
def variance_of_an_autoencoder() -> Step:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.log_variance = nn.Linear(6, 3), nn.Linear(6, 3)
            self.decoder = nn.Linear(3, 6)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            mean, log_variance = self.mean(x), self.log_variance(x)
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            divergence = 0.5 * (log_variance.exp() + mean.pow(2) - 1 - log_variance)  # planted here
            return self.decoder(z), divergence.sum(-1)

    model = Autoencoder()
    with torch.no_grad():
        model.log_variance.bias.fill_(90.0)

    def forward(batch: Tensor) -> Tensor:
        rebuilt, divergence = model(batch)
        return F.l1_loss(rebuilt, batch) + divergence.mean()

    return a_step(model, forward, torch.randn(5, 6))


@fault(cause=(*NAIVE, "bad-data-row"), operator="aten.exp", rows=4)
def ratio_of_policies() -> Step:
    model = Sequences()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        new = model(batch["x"]).log_softmax(-1).gather(1, batch["action"][:, None]).squeeze(-1)
        ratio = torch.exp(new - batch["old"])  # planted here
        return -(ratio * batch["advantage"]).mean()

    old = torch.full((5,), -1.1)
    old[4] = -200.0
    batch = {"x": torch.randn(5, 4, 5), "action": torch.tensor([0, 1, 2, 0, 1]), "old": old,
             "advantage": torch.randn(5)}  # fmt: skip
    return a_step(model, forward, batch)


@fault(cause=(*NAIVE, "bad-data-row"), operator="aten.exp", module="1", rows=0)
def softplus_by_hand() -> Step:
    class Softplus(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(1 + torch.exp(x))  # planted here

    model = nn.Sequential(nn.Linear(5, 8), Softplus(), nn.Linear(8, 1))

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).squeeze(-1).tanh(), batch["y"])

    x = torch.randn(6, 5)
    x[0] *= 300
    return a_step(model, forward, {"x": x, "y": torch.randn(6)})


@fault(cause=(*NAIVE, "loss-formula-singularity", "bad-data-row"), operator="aten.pow", rows=3)
def energy_by_a_power_of_ten() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        energy = 10.0 ** (model(batch["decibels"]).squeeze(-1) + batch["decibels"].amax(-1) / 10)  # planted here
        return (energy - batch["y"]).abs().mean()

    decibels = 10 * torch.rand(6, 5)
    decibels[3, 2] = 420.0
    return a_step(model, forward, {"decibels": decibels, "y": torch.rand(6)})


@fault(cause=SINGULAR, operator="aten.pow", rows=5)
def fractional_power_of_a_negative_number() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        difference = model(batch["x"]).squeeze(-1) - batch["y"]
        return (difference**1.5).mean()  # planted here

    x = torch.randn(6, 5)
    y = model(x).detach().squeeze(-1) - 1.0
    y[5] += 2.0
    return a_step(model, forward, {"x": x, "y": y})


@fault(cause=SINGULAR, operator="aten.acos", module="angle", rows=1)
def angle_between_two_equal_directions() -> Step:
    class Angle(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            cosine = (a * b).sum(-1) / (a.pow(2).sum(-1) * b.pow(2).sum(-1)).sqrt()
            return torch.acos(cosine * (1 + 1e-6))  # planted here

    model = nn.ModuleDict({"left": nn.Linear(5, 4), "angle": Angle()})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return model["angle"](model["left"](batch["x"]), batch["y"]).mean()

    x, y = torch.randn(6, 5), torch.randn(6, 4)
    y[1] = 3 * model["left"](x[1]).detach()
    return a_step(model, forward, {"x": x, "y": y})
