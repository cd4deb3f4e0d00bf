"""A re-run leaves the process as it was."""

import threading

import torch
from torch import nn

from stayfinite.autopsy.steps.changes import autocast_as
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.trace import trace_step
from stayfinite.autopsy.worlds.worlds import precision_world
from stayfinite.state.rng import capture_rng


def test_a_world_in_another_precision_leaves_the_cpus_library_switched_on():
    model = nn.Linear(64, 64)
    step = Step(
        model=model,
        forward=lambda x: model(x.to(torch.float16).float()).square().mean(),
        batch=torch.randn(8, 64),
        rng=capture_rng(),
        autocast=lambda: torch.autocast("cpu", dtype=torch.float16),
    )
    before = bool(torch.backends.mkldnn.enabled)
    assert precision_world(step, "bf16").step.run().finite
    assert bool(torch.backends.mkldnn.enabled) is before


class Caching(nn.Module):
    """Puts another buffer in the place of its own at every forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.register_buffer("cache", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = x.detach().clone()
        return self.linear(x).mean()


def test_a_buffer_that_the_forward_pass_replaced_is_there_again():
    model = Caching()
    before = model.cache
    Step(model=model, forward=model, batch=torch.ones(3, 4), rng=capture_rng()).run()
    assert model.cache is before
    assert torch.equal(before, torch.zeros(1))


def test_an_optimizer_that_steps_as_gradients_come_in_does_not_step_in_a_rerun():
    model = nn.Linear(4, 1)
    taken = []

    def take(parameter: torch.Tensor) -> None:
        taken.append(parameter)
        with torch.no_grad():
            parameter -= parameter.grad
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(take)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = Step(model=model, forward=lambda x: model(x).square().mean(), batch=torch.ones(3, 4), rng=capture_rng())
    assert step.run().grad_norm > 0
    assert trace_step(step).finite
    assert taken == []
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    model(torch.ones(3, 4)).mean().backward()
    assert len(taken) == 2, "they are on again"


def test_a_world_without_autocast_leaves_the_autocast_of_another_thread_alone():
    seen = []

    def other_training() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            seen.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)

    with autocast_as(None):
        thread = threading.Thread(target=other_training)
        thread.start()
        thread.join()
        with torch.autocast("cpu", torch.bfloat16):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
    assert seen == [torch.bfloat16]
