"""Faults that exist on CUDA alone, told from those that exist everywhere by running the step on the CPU.

Where pytest is missing:  PYTHONPATH=src:tests python3 tests/autopsy/worlds/test_elsewhere_on_cuda.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from on_a_gpu import MARKS, run_all
from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.worlds.elsewhere import moved_to, other_device
from stayfinite.state.rng import capture_rng

pytestmark = MARKS

HALF = partial(torch.autocast, "cuda", torch.bfloat16)


class WrongOnCuda(torch.autograd.Function):
    """Twice its input; on CUDA with a NaN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2.0 if not x.is_cuda else (x * 2.0).index_fill(-1, torch.tensor([3], device=x.device), math.nan)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 2.0


class WrongBackwardOnCuda(torch.autograd.Function):
    """Twice its input; on CUDA the derivative has a NaN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        twice = gradients[0] * 2.0
        return twice.index_fill(-1, torch.tensor([3], device=twice.device), math.nan) if twice.is_cuda else twice


def a_step(middle: Callable[[Tensor], Tensor], *, dropout: float = 0.0, **settings: Any) -> Step:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Dropout(dropout), nn.Linear(8, 1)).cuda()

    def forward(batch: dict[str, Tensor]) -> Tensor:
        features = model[2](model[1](model[0](batch["x"])))
        return F.mse_loss(model[3](middle(features)).squeeze(-1).float(), batch["y"])

    batch = {"x": torch.randn(6, 5, device="cuda"), "y": torch.randn(6, device="cuda")}
    return Step(model=model, forward=forward, batch=batch, rng=capture_rng(), **settings)


def said_of(step: Step) -> dict[str, Any]:
    before = {name: (id(p), p.device.type, p.detach().clone()) for name, p in step.model.named_parameters()}
    said = perform(step).to_json()
    for name, p in step.model.named_parameters():
        assert (id(p), p.device.type) == before[name][:2]
        assert p.grad is None
        assert torch.equal(p, before[name][2])
    return said


def ran(said: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {world["name"]: world for world in said["worlds"]}


def blamed_on_the_device(said: dict[str, Any]) -> None:
    assert said["cause"] == "upstream-bug", said["verdict"]
    assert (said["fix"]["by"], said["fix"]["verified"]) == ("other_device", True)
    assert said["worlds"][-1]["name"] == "other_device"
    assert "the CPU" in said["verdict"]


def test_a_fault_on_cuda_alone_is_blamed_on_what_runs_the_step() -> None:
    blamed_on_the_device(said_of(a_step(WrongOnCuda.apply)))


def test_so_is_one_in_plain_lines_and_one_under_autocast_and_one_behind_dropout() -> None:
    def plain(x: Tensor) -> Tensor:
        return x.index_fill(-1, torch.tensor([3], device=x.device), math.nan) if x.is_cuda else x

    blamed_on_the_device(said_of(a_step(plain)))
    half = said_of(a_step(plain, autocast=HALF))
    blamed_on_the_device(half)
    dropped = said_of(a_step(plain, dropout=0.5))
    blamed_on_the_device(dropped)
    assert ran(dropped)["dropout_off"]["finite"] is False


def test_a_wrong_backward_on_cuda_alone_is_found_in_the_function() -> None:
    said = said_of(a_step(WrongBackwardOnCuda.apply))
    assert said["origin"]["phase"] == "backward"
    # Derived by autograd it is finite on CUDA too, which says more than that the CPU is right.
    assert said["fix"]["by"] in ("derived_backward", "other_device"), said["verdict"]


def test_a_fault_that_exists_everywhere_is_not_blamed_on_the_device() -> None:
    def everywhere(x: Tensor) -> Tensor:
        return x.index_fill(-1, torch.tensor([3], device=x.device), math.nan)

    said = said_of(a_step(everywhere))
    assert ran(said)["other_device"]["finite"] is False
    assert said["cause"] == "nan-loss"
    formula = said_of(a_step(lambda x: x * (x * 0.0).sum().sqrt()))
    assert formula["cause"] == "loss-formula-singularity"
    assert "other_device" not in ran(formula), "the formula was shown to be at fault on CUDA already"


def test_a_forward_pass_that_names_its_device_is_not_run_and_is_no_evidence() -> None:
    def named(x: Tensor) -> Tensor:
        x = x.to("cuda")
        return x.index_fill(-1, torch.tensor([3], device="cuda"), math.nan)

    def there_and_back(x: Tensor) -> Tensor:
        return named(x).to(x.device)

    for middle in (named, there_and_back):
        said = said_of(a_step(middle))
        assert ran(said)["other_device"]["error"]
        assert said["cause"] == "nan-loss", said["verdict"]


def test_a_healthy_step_is_the_same_on_the_cpu() -> None:
    step = a_step(lambda x: x)
    there = other_device(step)
    assert there == torch.device("cpu")
    here, moved = step.run(), moved_to(step, there).run()
    assert not moved.error
    assert math.isclose(here.loss, moved.loss, rel_tol=1e-4)
    assert math.isclose(here.grad_norm, moved.grad_norm, rel_tol=1e-3)
    assert perform(step).healthy


def test_a_model_on_the_cpu_is_run_on_cuda() -> None:
    step = a_step(lambda x: x)
    batch = {name: item.cpu() for name, item in step.batch.items()}
    step.model.cpu()

    def wrong_on_the_cpu(batch: dict[str, Tensor]) -> Tensor:
        loss = step.model(batch["x"]).square().mean()
        return loss if loss.is_cuda else loss.reshape(1).index_fill(0, torch.tensor([0]), math.nan).sum()

    said = said_of(Step(model=step.model, forward=wrong_on_the_cpu, batch=batch, rng=step.rng))
    assert said["cause"] == "upstream-bug", said["verdict"]
    assert ran(said)["other_device"]["change"] == "everything on cuda"


if __name__ == "__main__":
    run_all(globals())
