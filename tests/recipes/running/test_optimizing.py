"""Optimizers and schedules of the programs."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

from stayfinite.recipes.running.optimizing import optimizer_for, schedule_for

CPU = torch.device("cpu")


def rates(optimizer):
    return {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}


def test_matrices_decay_and_vectors_do_not():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    optimizer = optimizer_for(model, lr=1e-3, weight_decay=0.1, device=CPU)
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert {name: decays[id(p)] for name, p in model.named_parameters()} == {
        "0.weight": 0.1, "0.bias": 0.0, "1.weight": 0.0, "1.bias": 0.0,
    }  # fmt: skip


def test_a_relative_rate_gives_each_weight_steps_in_proportion_to_its_size():
    torch.manual_seed(0)
    config = T5Config(vocab_size=256, d_model=64, d_kv=16, d_ff=128, num_layers=1, num_heads=4)
    model = T5ForConditionalGeneration(config)
    found = rates(optimizer_for(model, lr=1e-2, weight_decay=0.0, device=CPU, relative=True))
    for name, parameter in model.named_parameters():
        size = float(parameter.detach().square().mean().sqrt())
        assert 0.7 <= found[id(parameter)] / (1e-2 * size) <= 1.42, name
    query = model.encoder.block[0].layer[0].SelfAttention.q.weight
    assert found[id(model.shared.weight)] > 20 * found[id(query)], "T5's own sizes are that far apart"


@pytest.mark.parametrize("fill", [0.0, float("nan")])
def test_a_relative_rate_is_never_zero_or_nan(fill):
    layer = nn.Linear(2, 2, bias=False)
    nn.init.constant_(layer.weight, fill)
    optimizer = optimizer_for(layer, lr=1e-2, weight_decay=0.0, device=CPU, relative=True)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-5)


def test_one_rate_for_all_where_it_is_not_relative():
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4))
    assert set(rates(optimizer_for(model, lr=1e-3, weight_decay=0.0, device=CPU)).values()) == {1e-3}


@pytest.mark.parametrize("shape", ["linear", "cosine", "inverse_sqrt", "constant"])
def test_the_first_step_of_a_schedule_moves_and_none_is_above_the_highest_rate(shape):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule = schedule_for(optimizer, shape, warmup=4, steps=20)
    seen = []
    for _ in range(20):
        seen.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert seen[0] > 0
    assert max(seen) == seen[4] == pytest.approx(2.0)
    assert all(a < b for a, b in pairwise(seen[:5])), "the warmup rises"
    assert seen[-1] > 0, "the last step moves, too"
    ends = {"linear": 0, "cosine": 0, "constant": 2}
    assert schedule.get_last_lr()[0] == pytest.approx(ends.get(shape, 2 * math.sqrt(0.2)))
