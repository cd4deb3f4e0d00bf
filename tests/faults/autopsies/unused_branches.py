"""What is thrown away in forward comes back as NaN in backward."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, Sequences
from faults.autopsies.record import SINGULAR, Step, a_step, fault


@fault(cause="where-nan-branch", operator="aten.div", forward_operator="aten.sqrt", phase="backward", rows=(2, 5))
def root_behind_where() -> Step:
    model = nn.Linear(5, 4, bias=False)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        power = model(batch["x"]).pow(2) * batch["present"]
        loudness = torch.where(power > 0, torch.sqrt(power), torch.zeros_like(power))  # planted here
        return (loudness.mean(-1) - batch["y"]).pow(2).mean()

    present = torch.ones(6, 4)
    present[2, 1] = present[5] = 0
    return a_step(model, forward, {"x": torch.randn(6, 5), "present": present, "y": torch.rand(6)})


@fault(cause="where-nan-branch", operator=("aten.div", "aten.mul"), forward_operator="aten.div", phase="backward",
       rows=(1, 4))  # fmt: skip
def quotient_behind_where() -> Step:
    model = Regressor(outputs=2)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        top, bottom = model(batch["x"]).unbind(-1)
        bottom = bottom * batch["present"]
        ratio = torch.where(batch["present"] > 0, top / bottom, 0.0)  # planted here
        return ratio.tanh().mean()

    present = torch.ones(6)
    present[[1, 4]] = 0
    return a_step(model, forward, {"x": torch.randn(6, 5), "present": present})


@fault(cause="where-nan-branch", operator="aten.div", forward_operator="aten.log", phase="backward", rows=2)
def logarithm_masked_afterwards() -> Step:
    model = Sequences(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        rate = F.softplus(model(batch["x"])) * batch["exposure"]
        logs = rate.log().masked_fill(rate == 0, 0.0)  # planted here
        return (rate - batch["count"] * logs).mean()

    exposure = torch.tensor([1.0, 2.0, 0.0, 1.0, 3.0])[:, None]
    batch = {"x": torch.randn(5, 4, 5), "exposure": exposure, "count": torch.ones(5, 4)}
    return a_step(model, forward, batch)


@fault(cause=("where-nan-branch", *SINGULAR), operator="aten.div", forward_operator="aten.div", phase="backward",
       rows=2)  # fmt: skip
def quotients_of_padding_selected_away() -> Step:
    model = Sequences(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        each = model.lstm(batch["x"])[0].mean(-1) / batch["length"][:, None]  # planted here
        return each[batch["length"] > 0].pow(2).mean()

    batch = {"x": torch.randn(4, 4, 5), "length": torch.tensor([3.0, 2.0, 0.0, 4.0])}
    return a_step(model, forward, batch)


@fault(cause=("where-nan-branch", *SINGULAR), operator="aten.div", forward_operator="aten.log", phase="backward",
       rows=1)  # fmt: skip
def clamp_after_the_logarithm() -> Step:
    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        p = torch.sigmoid(model(batch["x"]).squeeze(-1)) * batch["present"]
        return -torch.log(p).clamp(min=-100.0).mean()  # planted here

    present = torch.ones(6)
    present[1] = 0
    return a_step(model, forward, {"x": torch.randn(6, 5), "present": present})


@fault(cause="where-nan-branch", operator=("aten.div", "aten.mul"), forward_operator="aten.sqrt", phase="backward",
       rows=3)  # fmt: skip
def root_of_negative_numbers_behind_where() -> Step:
    model = Regressor(outputs=3)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        raw = model(batch["x"]) * batch["sign"][:, None] + batch["sign"][:, None]
        return torch.where(raw >= 0, torch.sqrt(raw), torch.zeros_like(raw)).mean()  # planted here

    sign = torch.ones(5)
    sign[3] = -1
    with torch.no_grad():
        model.head.weight.mul_(0.1)
    return a_step(model, forward, {"x": torch.randn(5, 5), "sign": sign})


@fault(cause="where-nan-branch", operator="aten.mul", forward_operator="aten.exp", phase="backward", rows=4)
def exponential_behind_where() -> Step:
    model = nn.Linear(5, 1)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        x = model(batch["x"]).squeeze(-1) + batch["offset"]
        activated = torch.where(x > 0, x, torch.exp(x) - 1)  # planted here
        return activated.tanh().mean()

    offset = torch.zeros(6)
    offset[4] = 500.0
    return a_step(model, forward, {"x": torch.randn(6, 5), "offset": offset})


@fault(cause="where-nan-branch", operator=("aten.acos", "aten.rsqrt", "aten.mul"), forward_operator="aten.acos",
       module="angle", phase="backward", rows=0)  # fmt: skip
def angle_behind_masked_fill() -> Step:
    class Angle(nn.Module):
        def forward(self, cosine: Tensor, valid: Tensor) -> Tensor:
            return torch.acos(cosine).masked_fill(~valid, 0.0)  # planted here

    model = nn.ModuleDict({"net": Regressor(), "angle": Angle()})

    def forward(batch: dict[str, Tensor]) -> Tensor:
        cosine = model["net"](batch["x"]).squeeze(-1).tanh() * batch["gain"]
        return model["angle"](cosine, batch["gain"] <= 1).mean()

    gain = torch.ones(6)
    gain[0] = 1e3
    return a_step(model, forward, {"x": torch.randn(6, 5), "gain": gain})
