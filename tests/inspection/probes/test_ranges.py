"""What leaves fp16's range is named before it happens: the prediction is held against a real pass in fp16."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from inspection.probes.planted_ranges import HEALTHY, PLANTED
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.trace import trace_step
from stayfinite.autopsy.tracing.events import Health
from stayfinite.autopsy.tracing.tracer import is_constant_infinity
from stayfinite.inspection.probes.ranges import ranges_of
from stayfinite.state.rng import capture_rng


def step_of(model: nn.Module, batch: Tensor) -> Step:
    return Step(model=model, forward=model, batch=batch, rng=capture_rng())


def predicted(step: Step) -> set[str]:
    ranges = ranges_of(step)
    assert not ranges.fp16_error
    return {each.module for each in ranges.overflows if each.first and not each.backward}


def really(step: Step) -> set[str]:
    """Modules with an operator that makes something infinite of what is finite, in fp16 as torch computes it."""
    traced = trace_step(step.changed(autocast=partial(torch.autocast, "cpu", dtype=torch.float16)))
    assert traced.tracer is not None
    assert "float16" in traced.dtypes
    return {
        event.module
        for event in traced.tracer.events
        if event.phase == "forward"
        and event.dtype == "float16"
        and event.after > Health.FINITE
        and all(health is Health.FINITE for health in event.before)
        and not is_constant_infinity(event)
    }


@pytest.mark.parametrize("times", [1.3, 5.0])
@pytest.mark.parametrize("name", PLANTED)
def test_the_modules_that_are_named_are_those_that_overflow_in_fp16(name: str, times: float) -> None:
    torch.manual_seed(0)
    step = step_of(*PLANTED[name](times))
    named = predicted(step)
    assert named
    assert named == really(step)


@pytest.mark.parametrize("times", [0.5, 0.8])
@pytest.mark.parametrize("name", PLANTED)
def test_a_near_miss_is_cleared(name: str, times: float) -> None:
    torch.manual_seed(0)
    step = step_of(*PLANTED[name](times))
    assert really(step) == set()
    assert predicted(step) == set()


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_model_is_cleared(name: str) -> None:
    torch.manual_seed(0)
    step = step_of(*HEALTHY[name]())
    assert predicted(step) == set()


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, batch: Tensor) -> Tensor:
        output = self.layer(batch)
        mask = torch.empty_like(output)
        return (output * mask.bernoulli_(0.5)).square().mean()


def test_memory_that_is_not_filled_yet_is_not_taken_for_a_result() -> None:
    for _ in range(8):
        dirt = [torch.full((64, 64), 1e30) for _ in range(8)]
        del dirt
        assert not ranges_of(step_of(Masked(), torch.randn(64, 64))).overflows
