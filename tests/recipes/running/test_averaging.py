"""Averaged weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stayfinite.recipes.running.optimizing import Average


def test_the_average_follows_the_weights_and_forgets_the_first_ones():
    model = nn.Linear(2, 2)
    average = Average(model, 0.9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(3.0)
    for step in range(1, 200):
        average.update(step)
    torch.testing.assert_close(average.module.weight, torch.full((2, 2), 3.0))


def test_the_average_lies_between_the_old_and_the_new_weights():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    average = Average(model, 0.999)
    nn.init.ones_(model.weight)
    average.update(100_000)
    assert float(average.module.weight) == pytest.approx(0.001)


def test_statistics_and_counters_of_the_model_come_along():
    model = nn.BatchNorm1d(2)
    average = Average(model, 0.5)
    model(torch.randn(8, 2, generator=torch.Generator().manual_seed(0)) + 5)
    for step in range(1, 60):
        average.update(step)
    torch.testing.assert_close(average.module.running_mean, model.running_mean)
    assert int(average.module.num_batches_tracked) == 1


def test_the_average_is_not_trained():
    average = Average(nn.Linear(2, 2), 0.9)
    assert not any(parameter.requires_grad for parameter in average.parameters())
    assert not average.module.training


def test_a_step_is_followed_once_and_a_saved_average_knows_which_was_the_last():
    model = nn.Linear(2, 2)
    average = Average(model, 0.9)
    nn.init.ones_(model.weight)
    average.update(3)
    saved = {name: tensor.clone() for name, tensor in average.state_dict().items()}
    average.update(3)
    assert all(torch.equal(tensor, saved[name]) for name, tensor in average.state_dict().items())
    again = Average(model, 0.9)
    again.load_state_dict(saved)
    for each in (average, again):
        each.update(4)
    assert torch.equal(average.module.weight, again.module.weight)
    assert int(again.steps) == 4
