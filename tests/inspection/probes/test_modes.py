"""The modes in which a training computes its loss."""

import torch
from torch import nn
from torch.nn import functional as F

from inspection.planted import causes, cross_entropy, net


def test_a_model_in_evaluation_mode_is_found():
    assert causes(net().eval()) == ["wrong-mode"]


def test_a_forward_pass_that_sets_the_mode_itself_is_fine():
    model = net().eval()

    def forward(given):
        model.train()
        return cross_entropy(model)(given)

    assert causes(model, forward=forward) == []
    assert not model.training


def test_a_forward_pass_that_goes_to_evaluation_mode_is_found():
    model = net()

    def forward(given):
        model.eval()
        return cross_entropy(model)(given)

    assert causes(model, forward=forward) == ["wrong-mode"]
    assert model.training


def test_a_part_that_learns_and_was_left_in_evaluation_mode_is_found():
    model = nn.Sequential(net().eval(), nn.Linear(5, 5))
    assert model.training
    assert causes(model) == ["wrong-mode"]


def test_a_frozen_part_in_evaluation_mode_is_fine():
    model = nn.Sequential(net().requires_grad_(False).eval(), nn.Linear(5, 5))
    assert causes(model) == []


def test_a_stray_no_grad_is_found():
    model = net()

    def forward(given):
        with torch.no_grad():
            return cross_entropy(model)(given)

    assert set(causes(model, forward=forward)) == {"detached-loss", "wrong-mode"}


def test_a_frozen_part_under_no_grad_is_fine():
    backbone, head = net().requires_grad_(False), nn.Linear(5, 5)
    model = nn.Sequential(backbone, head)

    def forward(given):
        with torch.no_grad():
            features = backbone(given["x"])
        return F.cross_entropy(head(features), given["label"])

    assert causes(model, torch.optim.SGD(head.parameters(), lr=0.1), forward=forward) == []


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 5))


def test_batch_norm_on_a_batch_of_one_is_found_and_on_two_is_fine():
    one, two = ({"x": torch.randn(rows, 12), "label": torch.arange(rows)} for rows in (1, 2))
    assert causes(normed(), given=one)[0] == "wrong-mode"
    assert causes(normed(), given=two) == []


def test_fixed_batch_norm_statistics_are_fine():
    model = normed()
    model[1].eval()
    assert causes(model) == []


def test_gradients_that_were_switched_off_before_are_found():
    model = net()
    with torch.no_grad():
        assert causes(model)[0] == "wrong-mode"
        assert not torch.is_grad_enabled()


def test_a_dropout_that_leaves_nothing_is_found_and_a_high_one_is_fine():
    model = net()
    model.drop.p = 0.5
    assert causes(model) == []
    model.drop.p = 0.99
    assert causes(model)[0] == "excess-dropout"
