"""What half precision rounds away: gradients, an eps, the difference to one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, bert, squared_error, words
from faults.autopsies.record import BRAIN, HALF, SINGULAR, WIDER, Step, a_step, fault


@fault(cause="fp16-underflow", materials={"trigger": "manual"})
def gradients_that_vanish_in_fp16() -> Step:
    model = Regressor(outputs=4)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(batch["x"])
        return 1e-8 * F.cross_entropy(logits.float(), batch["y"])

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randint(0, 4, (6,))})


@fault(cause="fp16-underflow", materials={"trigger": "manual"})
def gradients_that_vanish_in_fp16_weights() -> Step:
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).half()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"]).float().squeeze(-1), batch["y"]) * 1e-7

    return a_step(model, forward, {"x": torch.randn(6, 5).half(), "y": torch.randn(6)})


@fault(cause=("loss-formula-singularity", "norm-eps"), operator="aten.div", module="1", rows=1,
       fixed_by=(*WIDER, "rows_removed"))  # fmt: skip
def tiny_eps_of_a_norm_in_fp16() -> Step:
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            deviation = x - x.mean(-1, keepdim=True)
            return deviation / (deviation.pow(2).mean(-1, keepdim=True) + 1e-8).sqrt()  # planted here

    model = nn.Sequential(nn.Linear(5, 8, bias=False), Norm(), nn.Linear(8, 1)).half()

    forward = squared_error(model)

    x = torch.randn(6, 5).half()
    x[1] = 0
    return a_step(model, forward, {"x": x, "y": torch.randn(6).half()})


@fault(cause=("loss-formula-singularity", "norm-eps"), operator="aten.div", rows=5)
def normalize_in_fp16() -> Step:
    model = nn.Linear(5, 4, bias=False).half()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        left = F.normalize(model(batch["left"]), dim=-1)  # planted here
        return 1 - (left * batch["right"]).sum(-1).mean()

    left = torch.randn(6, 5).half()
    left[5] = 0
    return a_step(model, forward, {"left": left, "right": F.normalize(torch.randn(6, 4), dim=-1).half()})


@fault(cause="loss-formula-singularity", operator="aten.log")
def one_minus_a_chance_in_bf16() -> Step:
    model = Regressor()
    with torch.no_grad():
        model.head.bias.fill_(7.0)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        p = torch.sigmoid(model(batch["x"])).squeeze(-1)
        return -torch.log(1 - p).mean()  # planted here

    return a_step(model, forward, {"x": torch.randn(6, 5)}, autocast=BRAIN)


@fault(cause="loss-formula-singularity", operator="aten.acos", rows=1)
def cosine_above_one_in_bf16() -> Step:
    model = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(4))

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = model(batch["x"])
            z = z / (z * z).sum(-1, keepdim=True).sqrt()
            cosine = (z * (0.9 * z + 0.1 * batch["y"])).sum(-1)
            return torch.acos(1.001 * cosine).float().mean()  # planted here

    x = F.normalize(torch.tensor([[1.0, 2.0, 3.0, 4.1], [0.3, 0.1, 0.7, 0.2], [1.0, 0.4, 0.2, 0.9]]), dim=-1)
    y = x.clone()
    y[[0, 2]] = -y[[0, 2]]
    return a_step(model, forward, {"x": x, "y": y})


@fault(cause=SINGULAR, operator="aten.sqrt", module="1")
def variance_that_rounding_makes_negative_in_bf16() -> Step:
    class Deviation(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            variance = (x * x).mean(-1) - x.mean(-1) ** 2
            return torch.sqrt(variance)  # planted here

    model = nn.Sequential(nn.Linear(5, 8), Deviation())
    with torch.no_grad():
        model[0].bias.fill_(100.0)
        model[0].weight.mul_(0.5)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch["x"]).float().mean()

    return a_step(model, forward, {"x": torch.randn(12, 5)})


@fault(cause=SINGULAR, operator="aten.log", rows=2)
def eps_that_bf16_forgets() -> Step:
    model = Regressor(outputs=4).bfloat16()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        p = torch.softmax(model(batch["x"]) * batch["sharpness"][:, None], dim=-1)
        rest = 1.0 + 1e-4 - p.amax(-1)
        return -torch.log(rest).float().mean()  # planted here

    sharpness = torch.ones(6, dtype=torch.bfloat16)
    sharpness[2] = 2000
    return a_step(model, forward, {"x": torch.randn(6, 5).bfloat16(), "sharpness": sharpness})


@fault(cause="fp16-underflow", materials={"trigger": "manual"})
def gradients_of_bert_that_vanish_in_fp16() -> Step:
    model = bert()
    batch = {"input_ids": words(), "labels": torch.tensor([0, 1, 0, 1, 1, 0])}

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return model(**batch).loss / 1e6

    return a_step(model, forward, batch, autocast=HALF)
