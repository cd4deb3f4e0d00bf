"""Steps that fp8 breaks are told from steps that break in every format, and the layer is named."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.worlds.eight_bits import guilty, in_bf16
from stayfinite.autopsy.worlds.worlds import Materials
from stayfinite.state.rng import capture_rng

HUGE = 1e7


class Remembering(nn.Linear):
    """A linear layer in fp8 whose scale is that of the step before, as delayed scaling has it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("amax_history", torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        scale = 57344.0 / self.amax_history
        small = (x * scale).to(torch.float8_e5m2)
        self.amax_history.fill_(x.detach().abs().amax())
        return super().forward(small.to(x.dtype) / scale)


class Directions(nn.Module):
    """Two layers, and the direction of what comes out: a row of zeros has none."""

    def __init__(self, kind: type[nn.Linear] = nn.Linear) -> None:
        super().__init__()
        self.first = kind(32, 32)
        self.second = nn.Linear(32, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(torch.tanh(self.first(x)))
        return y / y.norm(dim=-1, keepdim=True)


def a_step(model: nn.Module, x: Tensor) -> Step:
    return Step(model=model, forward=lambda batch: model(batch["x"]).mean(), batch={"x": x}, rng=capture_rng())


def rows(count: int = 16, width: int = 32) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(1))


def in_fp8(outlier: str) -> Step:
    """torchao's own layers, emulated on the CPU, where one token or one channel is far larger than all else."""
    float8 = pytest.importorskip("torchao.float8")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32, bias=False), Directions())
    x = rows()
    with torch.no_grad():
        if outlier == "token":
            x[3] = HUGE
        if outlier == "channel":
            x[:, 5] = HUGE
            model[0].weight[:, 5] = 0.0  # in any other format it takes no part
    model[1].first.bias = None
    config = float8.Float8LinearConfig(emulate=True)
    float8.convert_to_float8_training(model, config=config, module_filter_fn=lambda module, name: name != "1.second")
    return a_step(model, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outlier", "verified", "layers"),
    # A token that is far larger than the others is so in both layers; the channel ends in the first.
    [("token", "rowwise_scale", "0, 1.first"), ("channel", "module_bf16", "0")],
)
def test_an_outlier_that_one_scale_does_not_hold_is_proved_by_layers_in_bf16(outlier, verified, layers):
    found = perform(in_fp8(outlier), Materials(), 60.0).to_json()
    assert found["cause"] == "fp8-saturation"
    assert found["fix"]["by"] == verified
    changes = {world["name"]: world["change"] for world in found["worlds"]}
    assert changes["module_bf16"] == f"{layers} in bf16, not fp8"


@pytest.mark.slow
def test_a_step_in_fp8_without_an_outlier_has_nothing_to_explain():
    assert perform(in_fp8("none"), Materials(), 60.0).healthy


@pytest.mark.slow
def test_what_breaks_in_bf16_as_well_is_not_blamed_on_fp8():
    step = in_fp8("none")
    x = step.batch["x"].clone()
    x[4, 7] = float("nan")
    assert perform(step.changed(batch={"x": x}), Materials(), 60.0).to_json()["cause"] == "bad-data-row"


@pytest.mark.parametrize(("grown", "cause"), [(1000.0, "fp8-stale-scale"), (1.0, "")])
def test_a_scale_of_an_earlier_step_is_told_from_one_that_fits(grown, cause):
    torch.manual_seed(0)
    model = Directions(Remembering)
    model(rows())
    found = perform(a_step(model, grown * rows()), Materials(), 60.0).to_json()
    assert (found["cause"] or "") == cause
    if cause:
        assert found["fix"]["by"] == "module_bf16"
        assert "first casts" in found["verdict"]


def test_the_layers_compute_as_before_after_a_world():
    torch.manual_seed(0)
    model = Directions(Remembering)
    history = model.first.amax_history.clone()
    before = model(rows())
    model.first.amax_history.copy_(history)
    with in_bf16(model, ["first"]):
        model(rows())
    model.first.amax_history.copy_(history)
    assert torch.equal(model(rows()), before)
    assert "forward" not in vars(model.first)


@pytest.mark.parametrize(("helping", "found"), [({"c"}, ["c"]), ({"a", "d"}, ["a", "b", "c", "d"]), ({"z"}, [])])
def test_the_guilty_layers_are_found_by_halves(helping, found):
    assert guilty(["a", "b", "c", "d"], lambda some: helping <= set(some)) == found
