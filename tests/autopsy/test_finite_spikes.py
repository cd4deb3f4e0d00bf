"""A step that is finite and far above the others: what other random numbers change proves nothing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.worlds.worlds import Materials
from stayfinite.state.rng import capture_rng


class Attentive(nn.Module):
    """Attention with dropout inside of the fused function, as in most models of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (1, 48)).transpose(1, 2).chunk(3, dim=-1)
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        return self.head(attended.transpose(1, 2).flatten(2)).squeeze(-1)


def a_step():
    torch.manual_seed(0)
    model = Attentive()
    return Step(
        model=model,
        forward=lambda batch: model(batch["x"]).pow(2).mean(),
        batch={"x": torch.randn(8, 6, 16)},
        rng=capture_rng(),
    )


def the_autopsy_of_a_spike_by_chance():
    step = a_step()
    plain = step.run()
    # The very numbers that were drawn lie just above the limit; those of another kernel may well lie below.
    limit = {"loss": plain.loss * 10, "grad_norm": plain.grad_norm * 0.999}
    return perform(step, Materials(trigger="gradient-spike", spike_limit=limit), 20.0)


def test_a_finite_spike_is_never_blamed_on_a_kernel():
    found = the_autopsy_of_a_spike_by_chance().to_json()
    assert found["cause"] not in ("sdpa-kernel-bug", "upstream-bug", "excess-dropout", "nan-loss")
    assert not {"math_attention", "dropout_off"} & {world["name"] for world in found["worlds"]}


NEWER, REDRAWN = {"weights": "heard of 1 steps late"}, {"random": "random numbers may differ"}


@pytest.mark.parametrize(
    ("notes", "words"),
    [(NEWER, "newer weights"), (REDRAWN, "other random numbers"), (NEWER | REDRAWN, "newer weights and other random")],
)
def test_a_spike_that_another_run_does_not_have_is_chance_and_no_broken_device(notes, words):
    materials = Materials(trigger="loss-spike", spike_limit={"loss": 1e6, "grad_norm": 1e6}, notes=notes)
    found = perform(a_step(), materials, 20.0).to_json()
    assert found["cause"] == "loss-diverging"
    assert found["confidence"] <= 0.3
    assert f"re-run with {words}" in found["verdict"]


def test_a_spike_that_the_very_same_step_does_not_have_is_no_fault_of_the_step():
    materials = Materials(trigger="loss-spike", spike_limit={"loss": 1e6, "grad_norm": 1e6})
    found = perform(a_step(), materials, 20.0).to_json()
    assert found["cause"] == "hardware"
    assert "the step is normal" in found["verdict"]


def test_what_was_not_finite_and_is_on_newer_weights_is_less_sure_to_be_the_device():
    sure = perform(a_step(), Materials(trigger="loss-not-finite"), 20.0).to_json()
    newer = perform(a_step(), Materials(trigger="loss-not-finite", notes=NEWER), 20.0).to_json()
    assert sure["cause"] == newer["cause"] == "hardware"
    assert newer["confidence"] < sure["confidence"]
    assert "with the same batch, but newer weights, the step is finite" in newer["verdict"]
