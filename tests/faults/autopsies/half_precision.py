"""Formulas, losses, gradients and scales that fp16 cannot hold."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, bert, cross_entropy, own_loss, words
from faults.autopsies.record import HALF, MATMUL, OVERFLOW, WIDER, Step, a_step, fault


@fault(cause=OVERFLOW, operator="aten.mul", module="1", rows=3, fixed_by=WIDER)
def variance_by_squares_in_fp16() -> Step:
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mean = x.mean(-1, keepdim=True)
            variance = (x * x).mean(-1, keepdim=True) - mean * mean  # planted here
            return (x - mean) * torch.rsqrt(variance + 1e-5)

    model = nn.Sequential(nn.Linear(5, 8), Norm(), nn.Linear(8, 1))
    with torch.no_grad():
        model[0].weight.abs_()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return F.mse_loss(model(batch["x"]).squeeze(-1).float(), batch["y"])

    x = torch.randn(6, 5)
    x[3] = 900.0
    return a_step(model, forward, {"x": x, "y": torch.randn(6)})


@fault(cause=OVERFLOW, operator="aten.nll_loss_forward", fixed_by=WIDER)
def sum_of_token_losses_in_fp16() -> Step:
    model = Regressor(outputs=30).half()
    with torch.no_grad():
        model.head.weight.mul_(3000)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["x"])
        return F.cross_entropy(logits, batch["y"], reduction="sum")  # planted here

    x = torch.randn(64, 5).half()
    y = model(x).argmin(-1)
    return a_step(model, forward, {"x": x, "y": y})


@fault(cause="naive-exp", operator="aten.exp", fixed_by=WIDER)
def naive_softmax_in_fp16() -> Step:
    model = Regressor(outputs=4)
    with torch.no_grad():
        model.head.weight.mul_(60)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            odds = model(batch["x"]).exp()  # planted here
            chances = odds / odds.sum(-1, keepdim=True)
        return F.nll_loss((chances.float() + 1e-6).log(), batch["y"])

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randint(0, 4, (6,))})


@fault(cause=OVERFLOW, operator="aten.pow", module="1", rows=3)
def cast_to_half_by_hand() -> Step:
    class Energy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.half().pow(2).sum(-1).log1p().float()  # planted here

    model = nn.Sequential(nn.Linear(5, 8), Energy())
    x = torch.randn(6, 5)
    x[3] *= 2000
    return a_step(model, lambda batch: F.l1_loss(model(batch["x"]), batch["y"]), {"x": x, "y": torch.randn(6)})


@fault(cause=OVERFLOW, operator=("aten._to_copy", *MATMUL), forward_operator=("aten._to_copy", *MATMUL),
       module=("", "head"), phase="backward", materials={"trigger": "gradient-not-finite"},
       fixed_by=("small_loss_scale", *WIDER))  # fmt: skip
def loss_scale_too_high() -> Step:
    model = Regressor(outputs=4)
    batch = {"x": torch.randn(6, 5), "y": torch.randint(0, 4, (6,))}
    return a_step(
        model, lambda batch: F.cross_entropy(model(batch["x"]).float(), batch["y"]), batch, autocast=HALF, scale=2.0**24
    )


@fault(cause=OVERFLOW, operator=(*MATMUL, "aten.sum"), forward_operator=MATMUL, module=("2", "3"), phase="backward",
       fixed_by=(*WIDER, "small_loss_scale"), materials={"trigger": "gradient-not-finite"})  # fmt: skip
def gradient_beyond_fp16_without_any_loss_scale() -> Step:
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8, bias=False), nn.Linear(8, 1))
    with torch.no_grad():
        model[2].weight.fill_(40.0)
        model[3].weight.mul_(40.0)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return (model(batch["x"]).float().squeeze(-1) - batch["y"]).pow(2).sum()

    return a_step(model, forward, {"x": torch.randn(6, 5), "y": 10 * torch.randn(6)}, autocast=HALF)


@fault(cause=(*OVERFLOW, "double-fp16", "pure-fp16-weights"), operator="aten.mul", forward_operator="aten.mul",
       phase="backward", materials={"trigger": "gradient-not-finite"})  # fmt: skip
def scaled_loss_beyond_fp16() -> Step:
    model = Regressor(outputs=40).half()

    forward = cross_entropy(model)

    return a_step(model, forward, {"x": torch.randn(6, 5).half(), "y": torch.randint(0, 40, (6,))}, scale=2.0**16)


@fault(cause=OVERFLOW, operator=MATMUL, module="head", fixed_by=("fp32", "bf16", "origin_fp32"))
def overflow_of_an_activation_under_a_loss_scale() -> Step:
    model = Regressor(outputs=3)
    with torch.no_grad():
        model.head.weight.fill_(2e4)
    x = torch.ones(6, 5)
    with torch.no_grad():
        model.body[0].weight.abs_()
    return a_step(
        model,
        lambda batch: F.cross_entropy(model(batch["x"]).float(), batch["y"]),
        {"x": x, "y": torch.randint(0, 3, (6,))},
        autocast=HALF,
        scale=2.0**16,
    )


@fault(cause=OVERFLOW, operator=("aten._to_copy", *MATMUL, "aten._log_softmax_backward_data"),
       forward_operator=("aten._to_copy", *MATMUL, "aten._log_softmax"), module=("", "classifier", "bert"),
       phase="backward", materials={"trigger": "gradient-not-finite"},
       fixed_by=("small_loss_scale", *WIDER))  # fmt: skip
def loss_scale_too_high_for_bert() -> Step:
    model = bert()
    batch = {"input_ids": words(), "labels": torch.tensor([0, 1, 0, 1, 1, 0])}
    return a_step(model, own_loss(model), batch, autocast=HALF, scale=2.0**28)
