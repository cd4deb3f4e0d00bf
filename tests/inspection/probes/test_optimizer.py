"""What the optimizer holds is what is to be trained, once, at a rate that does something."""

import math
import warnings

import pytest
import torch
from torch import nn

from inspection.planted import adamw, batch, causes, cross_entropy, net
from stayfinite.inspection.preflight import inspect_training


def test_parameters_that_are_missing_are_found_and_named():
    model = net()
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    found = inspect_training(model, optimizer, batch(), cross_entropy(model), steps=0).findings
    assert found[0].cause == "params-not-in-optimizer"
    assert "first.weight" in found[0].evidence[0]


def test_parameters_that_are_left_out_because_they_are_frozen_are_fine():
    model = net()
    model.first.requires_grad_(False)
    model.second.requires_grad_(False)
    assert causes(model, torch.optim.SGD(model.head.parameters(), lr=0.1)) == []


def test_a_frozen_parameter_in_the_optimizer_is_fine():
    model = net()
    model.first.requires_grad_(False)
    assert causes(model, adamw(model)) == []


def test_a_tied_weight_that_is_listed_twice_is_found():
    model = net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = torch.optim.SGD([*model.parameters(), model.head.weight], lr=0.1)
    assert causes(model, optimizer)[0] == "params-twice"


def test_a_tied_weight_that_is_listed_once_is_fine():
    model = net()
    model.second.weight = nn.Parameter(torch.randn(24, 24) * 0.2)
    model.head = nn.Linear(24, 24, bias=False)
    model.head.weight = model.second.weight
    assert causes(model, torch.optim.SGD(model.parameters(), lr=0.1)) == []


def test_a_learning_rate_of_zero_is_found():
    model = net()
    assert causes(model, torch.optim.SGD(model.parameters(), lr=0.0))[0] == "lr-zero"


def test_a_warmup_that_begins_at_zero_is_fine():
    model = net()
    optimizer = adamw(model)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 100)
    assert optimizer.param_groups[0]["lr"] == 0
    assert causes(model, optimizer) == []


def test_a_learning_rate_that_is_no_number_is_found():
    model = net()
    optimizer = adamw(model)
    optimizer.param_groups[0]["lr"] = math.nan
    assert "lr-schedule-bug" in causes(model, optimizer)


def test_a_rate_that_moves_nothing_is_found_and_a_small_one_is_not():
    model = net()
    assert causes(model, torch.optim.AdamW(model.parameters(), lr=1e-9)) == ["lr-too-low"]
    assert causes(model, torch.optim.AdamW(model.parameters(), lr=1e-6)) == []


@pytest.mark.filterwarnings("ignore")
def test_float16_weights_are_found():
    model = net().half()
    given = batch()
    given["x"] = given["x"].half()
    assert "pure-fp16-weights" in causes(model, given=given)


def test_updates_that_bf16_rounds_away_are_found_and_larger_ones_are_fine():
    model = net().bfloat16()
    given = batch()
    given["x"] = given["x"].bfloat16()
    assert causes(model, torch.optim.AdamW(model.parameters(), lr=1e-6), given) == ["bf16-lost-updates"]
    assert causes(model, torch.optim.AdamW(model.parameters(), lr=1e-2), given) == []


def test_an_eps_of_zero_is_found_where_it_breaks_a_weight_and_is_fine_where_every_gradient_lives():
    def with_eps(eps: float, given: dict[str, torch.Tensor]) -> list[str]:
        model = net()
        return causes(model, torch.optim.Adam(model.parameters(), lr=1e-3, eps=eps), given)

    given = batch()
    assert with_eps(0.0, given) == []
    given["x"][:, 3] = 0  # the weights of this column have a gradient of exactly 0
    assert with_eps(0.0, given) == ["adam-eps-underflow"]
    assert with_eps(1e-8, given) == []


def test_groups_rates_and_decay_are_printed():
    model = net()
    groups = [
        {"params": [model.first.weight, model.second.weight, model.head.weight], "weight_decay": 0.1},
        {"params": [model.first.bias, model.second.bias, model.head.bias], "weight_decay": 0.0, "lr": 5e-4},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    table = inspect_training(model, optimizer, batch(), cross_entropy(model), steps=0).tables[0]
    assert table.title == "Parameter groups of AdamW"
    assert table.columns[:5] == ("group", "tensors", "values", "lr", "weight_decay")
    assert [row[3:5] for row in table.rows] == [("0.001", "0.1"), ("0.0005", "0")]
