"""A re-run leaves the process as it was."""

import torch
from torch import nn

from stayfinite.autopsy.step import Step
from stayfinite.autopsy.worlds import precision_world
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
