"""Healthy steps whose formulas come close to an edge, or have a guard before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, squared_error
from faults.autopsies.record import Step, a_step, look_alike


@look_alike
def large_but_finite_loss() -> Step:
    model = Regressor()
    batch = {"x": torch.randn(6, 5), "y": 1e8 + 1e6 * torch.randn(6)}
    return a_step(model, squared_error(model), batch)


@look_alike
def logarithm_of_zero_behind_where_with_a_safe_input() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        rate = F.softplus(model(batch["x"]).squeeze(-1)) * batch["exposure"]
        present = rate > 0
        logs = torch.where(present, torch.where(present, rate, 1.0).log(), 0.0)
        return (rate - batch["y"] * logs).mean()

    exposure = torch.tensor([1.0, 0.0, 2.0, 1.0, 0.0, 1.0])
    return a_step(model, forward, {"x": torch.randn(6, 5), "exposure": exposure, "y": torch.rand(6)})


@look_alike
def logarithm_of_data_behind_where() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logs = torch.where(batch["count"] > 0, batch["count"].log(), -1.0)
        return F.mse_loss(model(batch["x"]).squeeze(-1), logs)

    return a_step(model, forward, {"x": torch.randn(5, 5), "count": torch.tensor([0.0, 3.0, 0.0, 1.0, 9.0])})


@look_alike
def clamp_before_the_logarithm() -> Step:
    model = Regressor(outputs=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        p = (200 * model(batch["x"])).softmax(-1)
        return -p.clamp_min(1e-7).log().gather(1, batch["y"][:, None]).mean()

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randint(0, 3, (6,))})


@look_alike
def binary_cross_entropy_of_a_sure_and_wrong_answer() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        p = torch.sigmoid(1000 * model(batch["x"]).squeeze(-1))
        return F.binary_cross_entropy(p, batch["y"])

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.tensor([0.0, 1, 0, 1, 0, 1])})


@look_alike
def dropout_of_nine_tenths() -> Step:
    model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Dropout(0.9), nn.Linear(32, 1))
    batch = {"x": torch.randn(8, 5), "y": torch.randn(8)}
    return a_step(model, squared_error(model), batch)


@look_alike
def batch_norm_in_eval_with_a_constant_feature() -> Step:
    model = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1))
    model[0].eval()
    model[0].running_var[2] = 0.0
    x = torch.randn(6, 5)
    x[:, 2] = 0.0
    return a_step(model, squared_error(model), {"x": x, "y": torch.randn(6)})


@look_alike
def huge_inputs_that_a_layer_norm_tames() -> Step:
    model = nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 1))
    batch = {"x": 1e15 * torch.randn(6, 5), "y": torch.randn(6)}
    return a_step(model, squared_error(model), batch)


@look_alike
def zero_vectors_given_to_safe_formulas() -> Step:
    model = nn.Linear(5, 4, bias=False)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        z = model(batch["x"])
        similar = F.cosine_similarity(z, batch["y"], dim=-1)
        return similar.mean() + F.normalize(z, dim=-1).sum() + torch.cdist(z, z).mean() + z.norm(dim=-1).mean()

    x = torch.randn(6, 5)
    x[[1, 3]] = 0
    return a_step(model, forward, {"x": x, "y": torch.randn(6, 4)})


@look_alike
def root_behind_a_relu() -> Step:
    model = nn.Linear(5, 4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        power = F.relu(model(batch["x"]))
        return torch.where(power > 0, power.sqrt(), 0.0).sub(batch["y"]).pow(2).mean()

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.rand(6, 4)})


@look_alike
def square_that_overflows_and_is_thrown_away() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        size = batch["x"].pow(2).sum(-1)
        return (model(batch["x"].clamp(-3, 3)).squeeze(-1) - size.clamp_max(9.0)).pow(2).mean()

    x = torch.randn(6, 5)
    x[2, 2] = 1e30
    return a_step(model, forward, {"x": x})
