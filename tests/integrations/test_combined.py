"""The optimizers of an engine, with copies of the weights in them, are one training state."""

from __future__ import annotations

import torch
from torch import nn

from stayfinite.integrations.combined import EngineOptimizers
from stayfinite.measure.roster import take_roster
from stayfinite.state.parts import TrainingParts
from stayfinite.state.training import capture, restore


def test_weights_copies_and_moments_of_all_optimizers_go_back_together():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(torch.bfloat16)
    first, second = ([p.detach().float().requires_grad_() for p in layer.parameters()] for layer in model)
    optimizers = [torch.optim.AdamW(first), torch.optim.SGD(second, lr=0.1, momentum=0.9)]
    whole = EngineOptimizers.of(optimizers, model)
    parts = TrainingParts(model=model, optimizer=whole)

    def step() -> None:
        for copy in (*first, *second):
            copy.grad = torch.ones_like(copy)
        whole.step()
        with torch.no_grad():
            for parameter, copy in zip(model.parameters(), (*first, *second), strict=True):
                parameter.copy_(copy)

    def numbers() -> list[torch.Tensor]:
        moments = [value for state in whole.state.values() for value in state.values()]
        return [each.detach().clone() for each in (*model.parameters(), *first, *second, *moments)]

    step()
    state, before = capture(parts), numbers()
    step()
    assert not all(map(torch.equal, numbers(), before))
    restore(parts, state)
    assert len(before) == 4 + 4 + 2 * 3 + 2
    assert all(map(torch.equal, numbers(), before))
    assert type(whole).__name__ == "AdamW+SGD"
    assert take_roster(model, whole, partial=True).names == ("0.weight", "0.bias", "1.weight", "1.bias")
