"""Logarithms of zero."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, Sequences
from faults.autopsies.record import ROW, SINGULAR, Step, a_step, fault


@fault(cause=(*SINGULAR, "bad-data-row"), operator="aten.log", rows=4)
def log_of_a_count_of_zero() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        predicted = model(batch["x"]).squeeze(-1)
        wanted = torch.log(batch["count"])  # planted here
        return (predicted - wanted).abs().mean()

    batch = {"x": torch.randn(6, 5), "count": torch.tensor([3.0, 1.0, 7.0, 2.0, 0.0, 5.0])}
    return a_step(model, forward, batch)


@fault(cause=SINGULAR, operator="aten.log", rows=2)
def cross_entropy_by_hand_of_a_saturated_softmax() -> Step:
    model = Regressor(outputs=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["x"]) * batch["sharpness"][:, None]
        chances = torch.softmax(logits, dim=-1)
        chosen = chances.gather(1, batch["label"][:, None])
        return -torch.log(chosen).mean()  # planted here

    x = torch.randn(6, 5)
    label = model(x).argmin(-1)
    sharpness = torch.ones(6)
    sharpness[2] = 5000.0
    return a_step(model, forward, {"x": x, "label": label, "sharpness": sharpness})


@fault(cause=SINGULAR, operator="aten.log")
def binary_cross_entropy_by_hand() -> Step:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Regressor()
            self.scale = nn.Parameter(torch.tensor(400.0))

        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(self.scale * self.net(x)).squeeze(-1)

    model = Classifier()

    def forward(batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        p = model(x)
        positive = y * torch.log(p + 1e-12)
        return -(positive + (1 - y) * torch.log(1 - p)).mean()  # planted here

    x = torch.randn(8, 5)
    return a_step(model, forward, (x, (model(x) < 0.5).float()))


@fault(cause=SINGULAR, operator=("aten.log", "aten.mul"), rows=3)
def entropy_of_a_zero_chance() -> Step:
    model = Sequences()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["x"])
        p = torch.softmax(logits.masked_fill(batch["forbidden"], -torch.inf), dim=-1)
        bonus = -(p * p.log()).sum(-1).mean()  # planted here
        return F.cross_entropy(logits, batch["label"]) - 0.01 * bonus

    forbidden = torch.zeros(5, 3, dtype=torch.bool)
    forbidden[3, 1] = True
    batch = {"x": torch.randn(5, 4, 5), "label": torch.tensor([0, 1, 2, 0, 1]), "forbidden": forbidden}
    return a_step(model, forward, batch)


@fault(cause=SINGULAR, operator="aten.log1p", rows=3)
def chance_of_a_squashed_action() -> Step:
    model = Regressor(outputs=2)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        raw = model(batch["x"])
        action = torch.tanh(raw + batch["noise"])
        density = -0.5 * batch["noise"].pow(2) - torch.log1p(-action.pow(2))  # planted here
        return (density.sum(-1) * batch["return"]).mean()

    noise = torch.randn(6, 2)
    noise[3, 0] = 25.0
    batch = {"x": torch.randn(6, 5), "noise": noise, "return": torch.randn(6)}
    return a_step(model, forward, batch)


@fault(cause=SINGULAR, operator="aten.log")
def determinant_of_a_singular_matrix() -> Step:
    model = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        model.weight[3] = 0

    def forward(batch: Tensor) -> Tensor:
        volume = torch.linalg.det(model.weight).abs()
        return model(batch).pow(2).mean() - torch.log(volume)  # planted here

    return a_step(model, forward, torch.randn(6, 4))


@fault(cause=SINGULAR, operator="aten.log", rows=1)
def divergence_of_the_logarithm_of_zero() -> Step:
    model = Regressor(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        p = torch.softmax(model(batch["x"]) * batch["sharpness"][:, None], dim=-1)
        logs = p.log()  # planted here
        return F.kl_div(logs, batch["wanted"], reduction="batchmean")

    x = torch.randn(6, 5)
    sharpness = torch.ones(6)
    sharpness[1] = 4000.0
    wanted = torch.full((6, 4), 0.25)
    return a_step(model, forward, {"x": x, "wanted": wanted, "sharpness": sharpness})


@fault(cause=(*SINGULAR, "bad-data-row"), operator="aten.log", rows=(0, 3))
def mask_multiplied_after_the_logarithm() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        gain = torch.log(batch["level"])  # planted here
        return ((model(batch["x"]).squeeze(-1) - gain) * (batch["level"] > 0)).pow(2).mean()

    level = torch.rand(6) + 0.1
    level[[0, 3]] = 0
    return a_step(model, forward, {"x": torch.randn(6, 5), "level": level})


@fault(cause=(*SINGULAR, "bad-data-row"), operator="aten.log", rows=5)
def gumbel_noise_of_exactly_zero() -> Step:
    model = Regressor(outputs=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        noise = -torch.log(-torch.log(batch["uniform"]))  # planted here
        return -((model(batch["x"]) + noise).softmax(-1) * batch["reward"][:, None]).mean()

    uniform = torch.rand(6, 3).clamp(0.01, 0.99)
    uniform[5, 1] = 1.0
    return a_step(model, forward, {"x": torch.randn(6, 5), "uniform": uniform, "reward": torch.rand(6)})


@fault(cause=(*SINGULAR, *ROW), operator="aten.log10", rows=0)
def logarithm_in_double_precision() -> Step:
    model = Sequences(outputs=1).double()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        rate = F.softplus(model(batch["x"]).squeeze(-1))
        return (rate - batch["y"] * torch.log10(batch["exposure"] * rate)).mean()  # planted here

    exposure = torch.ones(5).double()
    exposure[0] = 0
    batch = {"x": torch.randn(5, 4, 5).double(), "y": torch.ones(5).double(), "exposure": exposure}
    return a_step(model, forward, batch)
