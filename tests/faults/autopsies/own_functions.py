"""Autograd functions of one's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.autopsies.models import Regressor, squared_error
from faults.autopsies.record import ROW, SINGULAR, Step, a_step, fault


class SquareRoot(torch.autograd.Function):
    """A root whose derivative forgets that it has none at zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        root = x.sqrt()
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (root,) = ctx.saved_tensors
        return gradient / (2 * root)


@fault(cause=SINGULAR, operator="aten.div", forward_operator=("aten.sqrt", "SquareRoot"), phase="backward", rows=4)
def wrong_backward_of_ones_own() -> Step:
    model = nn.Linear(5, 3, bias=False)

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return (SquareRoot.apply(model(batch["x"]).pow(2).sum(-1)) - 1).abs().mean()

    x = torch.randn(6, 5)
    x[4] = 0
    return a_step(model, forward, {"x": x})


@fault(cause=("naive-exp", *SINGULAR), operator="aten.exp",
       forward_operator=("aten.mul", "aten.sigmoid", "SharpSigmoid"), module="0", phase="backward", rows=1)  # fmt: skip
def backward_of_ones_own_that_overflows() -> Step:
    class SharpSigmoid(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.sigmoid(50 * x)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            odds = torch.exp(-50 * x)  # planted here
            return gradient * 50 * odds / (1 + odds) ** 2

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return SharpSigmoid.apply(self.linear(x))

    model = nn.Sequential(Gate(), nn.Linear(4, 1))
    x = torch.randn(6, 5)
    x[1] = -40 * model[0].linear.weight[0].detach()
    return a_step(model, squared_error(model), {"x": x, "y": torch.randn(6)})


@fault(cause=SINGULAR, operator="aten.div", forward_operator=("aten.mul", "aten.round", "aten.div", "Quantize"),
       phase="backward", rows=3)  # fmt: skip
def backward_of_ones_own_that_returns_nan() -> Step:
    class Quantize(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, steps: Tensor) -> Tensor:
            ctx.save_for_backward(steps)
            return (x * steps).round() / steps.clamp_min(1)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
            (steps,) = ctx.saved_tensors
            return gradient * (steps / steps), None  # planted here

    model = Regressor()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(Quantize.apply(model(batch["x"]), batch["steps"][:, None]).squeeze(-1), batch["y"])

    steps = torch.full((6,), 8.0)
    steps[3] = 0
    return a_step(model, forward, {"x": torch.randn(6, 5), "steps": steps, "y": torch.randn(6)})


@fault(cause=(*SINGULAR, *ROW), operator=("aten.reciprocal", "aten.div"), rows=1)
def function_of_ones_own_that_is_wrong_in_forward() -> Step:
    class Inverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            out = 1 / x  # planted here
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (out,) = ctx.saved_tensors
            return -gradient * out * out

    model = nn.Linear(5, 3, bias=False)
    x = torch.randn(6, 5)
    x[1] = 0
    return a_step(model, lambda batch: Inverse.apply(model(batch["x"])).tanh().mean(), {"x": x})


@fault(cause=SINGULAR, operator="aten.mul", forward_operator=("aten.clamp", "Clip"), module="0", phase="backward")
def backward_of_ones_own_that_multiplies_by_nan() -> Step:
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * float("nan")  # planted here

    class Clipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return Clip.apply(self.linear(x))

    model = nn.Sequential(Clipped(), nn.Linear(4, 1))
    return a_step(model, lambda batch: model(batch["x"]).pow(2).mean(), {"x": torch.randn(6, 5)})
