"""Formulas whose value is finite and whose derivative is not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, llama, words
from faults.autopsies.record import SINGULAR, Step, a_step, fault


@fault(cause=SINGULAR, operator="aten.div", forward_operator="aten.sqrt", phase="backward", rows=3)
def distance_of_two_equal_points() -> Step:
    model = nn.Linear(5, 3, bias=False)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        difference = model(batch["left"]) - model(batch["right"])
        return torch.sqrt(difference.pow(2).sum(-1)).mean()  # planted here

    left, right = torch.randn(6, 5), torch.randn(6, 5)
    right[3] = left[3]
    return a_step(model, forward, {"left": left, "right": right})


@fault(cause=SINGULAR, operator="aten.div", forward_operator="aten.sqrt", module="1", phase="backward")
def distances_of_all_pairs() -> Step:
    class Triplets(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return (z[:, None] - z[None]).pow(2).sum(-1).sqrt()  # planted here

    model = nn.Sequential(nn.Linear(5, 4), Triplets())

    def forward(batch: dict[str, Tensor]) -> Tensor:
        distance, same = model(batch["x"]), batch["y"][:, None] == batch["y"][None]
        return distance[same].mean() + F.relu(1.0 - distance[~same]).mean()

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.tensor([0, 1, 0, 1, 2, 2])})


@fault(cause=SINGULAR, operator=("aten.mul", "aten.pow"), forward_operator="aten.pow", phase="backward", rows=0)
def length_by_a_power_of_one_half() -> Step:
    model = nn.Linear(5, 3, bias=False)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        length = (model(batch["x"]) ** 2).sum(-1) ** 0.5  # planted here
        return (length - 1).abs().mean()

    x = torch.randn(6, 5)
    x[0] = 0
    return a_step(model, forward, {"x": x})


@fault(cause=SINGULAR, operator="aten.div", forward_operator="aten.sqrt", phase="backward")
def root_mean_square_error_of_a_perfect_fit() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return torch.sqrt(F.mse_loss(model(batch["x"]), batch["y"]))  # planted here

    x = torch.randn(6, 5)
    return a_step(model, forward, {"x": x, "y": model(x).detach()})


@fault(cause=SINGULAR, operator=("aten.rsqrt", "aten.mul", "aten.div"), forward_operator=("aten.acos", "aten.arccos"),
       phase="backward", rows=2)  # fmt: skip
def angle_of_exactly_one() -> Step:
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(3))

    def forward(batch: dict[str, Tensor]) -> Tensor:
        cosine = F.normalize(model(batch["x"]), dim=-1).mul(batch["y"]).sum(-1)
        return torch.arccos(cosine).mean()  # planted here

    x, y = torch.randn(5, 3), F.normalize(torch.randn(5, 3), dim=-1)
    x[2] = y[2] = torch.tensor([0.0, 1.0, 0.0])
    return a_step(model, forward, {"x": x, "y": y})


@fault(cause=SINGULAR, operator=("aten.mul", "aten.pow"), forward_operator="aten.pow", phase="backward", rows=4)
def focal_loss_of_a_sure_answer() -> Step:
    model = Regressor(outputs=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logs = F.log_softmax(model(batch["x"]) * batch["sharpness"][:, None], dim=-1)
        log_chosen = logs.gather(1, batch["y"][:, None]).squeeze(-1)
        modulation = (1 - log_chosen.exp()) ** 0.5  # planted here
        return -(modulation * log_chosen).mean()

    x = torch.randn(6, 5)
    sharpness = torch.ones(6)
    sharpness[4] = 3000.0
    batch = {"x": x, "y": model(x).argmax(-1), "sharpness": sharpness}
    return a_step(model, forward, batch)


@fault(cause=SINGULAR, operator="aten.div", forward_operator="aten.hypot", module="1", phase="backward", rows=1)
def radius_of_the_origin() -> Step:
    class Radius(nn.Module):
        def forward(self, z: Tensor) -> Tensor:
            return torch.hypot(z[:, 1], z[:, 0])  # planted here

    model = nn.Sequential(nn.Linear(4, 2, bias=False), Radius())

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return (model(batch["x"]) - batch["y"]).pow(2).mean()

    x = torch.randn(5, 4)
    x[1] = 0
    return a_step(model, forward, {"x": x, "y": torch.rand(5)})


@fault(cause=SINGULAR, operator=("aten.div", "aten.div_"), forward_operator="aten._linalg_eigh", phase="backward",
       fix=False)  # fmt: skip
def eigenvectors_of_a_round_covariance() -> Step:
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(2 * torch.eye(3))

    def forward(batch: Tensor) -> Tensor:
        _, axes = torch.linalg.eigh(model.weight @ model.weight.T)  # planted here
        return (batch @ axes).abs().mean()

    return a_step(model, forward, torch.randn(6, 3))


@fault(cause=SINGULAR, operator="aten.div", forward_operator="aten.sqrt", phase="backward", rows=1)
def penalty_on_the_length_of_llama_states() -> Step:
    model = llama()
    with torch.no_grad():
        model.model.embed_tokens.weight[3] = 0

    def forward(batch: Tensor) -> Tensor:
        embedded = model.model.embed_tokens(batch)
        penalty = embedded.pow(2).sum(-1).sqrt().mean()  # planted here
        return model(inputs_embeds=embedded, labels=batch).loss + 0.1 * penalty

    ids = words(4).clamp_min(4)
    ids[1, 2] = 3
    return a_step(model, forward, ids)


@fault(cause=SINGULAR, operator="aten.div", forward_operator="aten.sqrt", module="0", phase="backward", rows=2)
def magnitude_of_a_silent_spectrum() -> Step:
    class Spectrum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(1))

        def forward(self, sound: Tensor) -> Tensor:
            parts = torch.view_as_real(torch.fft.rfft(self.gain * sound))
            return parts.pow(2).sum(-1).sqrt()  # planted here

    model = nn.Sequential(Spectrum(), nn.Linear(9, 2))
    sound = torch.randn(6, 16)
    sound[2] = 0
    return a_step(
        model,
        lambda batch: F.cross_entropy(model(batch["sound"]), batch["y"]),
        {"sound": sound, "y": torch.randint(0, 2, (6,))},
    )
