import pytest
import torch
from torch import nn

from stayfinite.errors import ModelError, OptimizerError
from stayfinite.measure.roster import take_roster


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


def sgd(parameters):
    return torch.optim.SGD(list(parameters), lr=0.1)


def roster_of(model):
    return take_roster(model, sgd(model.parameters()))


def block():
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))


@pytest.mark.parametrize(
    "wrap",
    [lambda m: m, torch.compile, nn.DataParallel, lambda m: nn.DataParallel(torch.compile(m))],
    ids=["plain", "compiled", "parallel", "parallel and compiled"],
)
def test_wrappers_do_not_show_in_the_names(wrap):
    assert roster_of(wrap(block())).names == ("0.weight", "0.bias", "1.weight")


def test_a_compiled_layer_inside_a_model_does_not_show_in_the_names():
    model = block()
    model[0] = torch.compile(model[0])
    assert roster_of(model).names == ("0.weight", "0.bias", "1.weight")


def test_tied_weights_are_measured_once_under_their_first_name():
    model = Tied()
    roster = roster_of(model)
    assert roster.names == ("embed.weight",)
    assert roster.parameters[0] is model.head.weight


def test_frozen_parameters_are_left_out_even_when_the_optimizer_holds_them():
    model = block()
    model[0].requires_grad_(False)
    assert roster_of(model).names == ("1.weight",)


def test_names_keep_the_order_of_the_model_whatever_that_of_the_optimizer():
    model = block()
    roster = take_roster(model, sgd(reversed(list(model.parameters()))))
    assert roster.names == ("0.weight", "0.bias", "1.weight")


def test_parameters_of_several_groups_are_found():
    model = block()
    optimizer = torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.1)
    assert len(take_roster(model, optimizer).parameters) == 3


def test_parameters_that_only_the_optimizer_knows_are_measured_too():
    model, temperature = block(), nn.Parameter(torch.ones(()))
    roster = take_roster(model, sgd([temperature, *model.parameters()]))
    assert roster.names == ("0.weight", "0.bias", "1.weight", "optimizer.extra.0")
    assert roster.parameters[3] is temperature


def test_parameters_are_sorted_by_dtype_for_fused_passes():
    model = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1).double(), nn.Linear(1, 1)])
    places = roster_of(model).places
    cpu = torch.device("cpu")
    assert places == {(cpu, torch.float32): (0, 1, 4, 5), (cpu, torch.float64): (2, 3)}


def test_trainable_parameters_that_the_optimizer_does_not_hold_are_named():
    model = block()
    with pytest.raises(OptimizerError) as caught:
        take_roster(model, sgd(model[1].parameters()))
    assert caught.value.message == ("the optimizer lacks 2 of 3 trainable parameters: 0.weight, 0.bias")
    assert "freeze the rest" in caught.value.fix


def test_a_long_list_of_missing_parameters_is_cut_and_counted():
    model = nn.ModuleList(nn.Linear(1, 1) for _ in range(4))
    with pytest.raises(OptimizerError, match=r"0.weight, 0.bias, 1.weight, 1.bias, 2.weight and 3 more"):
        take_roster(model, sgd([nn.Parameter(torch.ones(1))]))


@pytest.mark.parametrize("model", [nn.ReLU(), nn.Linear(2, 2).requires_grad_(False)], ids=["none at all", "all frozen"])
def test_a_model_without_a_trainable_parameter_is_refused_with_the_remedy(model):
    with pytest.raises(ModelError, match=r"has no trainable parameters(.|\n)*fix: unfreeze parameters"):
        take_roster(model, sgd([nn.Parameter(torch.ones(1))]))
