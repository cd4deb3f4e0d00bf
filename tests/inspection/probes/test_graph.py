"""What depends on what: parameters that are not known, inputs that do not matter, samples and tokens that leak."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from inspection.healthy_setups import contrastive, convnet, gpt, lstm_time_first
from inspection.planted import adamw, batch, causes, cross_entropy, net
from stayfinite import preflight


class Listed(nn.Module):
    def __init__(self, hold) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = hold([nn.Linear(12, 12) for _ in range(3)])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


def test_layers_in_a_plain_list_are_found_and_named():
    model = Listed(list)
    found = preflight(model, adamw(model), batch(), cross_entropy(model), steps=0)
    assert found[0].cause == "unregistered-module"
    assert "layers.0.weight" in found[0].evidence[0]


def test_layers_in_a_module_list_are_fine():
    assert causes(Listed(nn.ModuleList)) == []


def test_a_plain_tensor_that_learns_is_found():
    model = net()
    model.shift = torch.zeros(5, requires_grad=True)
    forward = lambda given: F.cross_entropy(model(given["x"]) + model.shift, given["label"])  # noqa: E731
    assert causes(model, forward=forward) == ["unregistered-module"]


def test_a_loss_that_does_not_look_at_the_input_is_found():
    model = net()
    forward = lambda given: F.cross_entropy(model(torch.ones_like(given["x"])), given["label"])  # noqa: E731
    assert "input-ignored" in causes(model, forward=forward)


def test_a_last_layer_that_starts_at_zero_does_not_ignore_its_input():
    model = net()
    nn.init.zeros_(model.head.weight)
    assert causes(model) == []


class Attending(nn.Module):
    def __init__(self, *, batch_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1))


def sequences():
    return {"x": torch.randn(6, 10, 8), "label": torch.arange(6) % 5}


def test_attention_over_the_batch_is_found_and_over_time_is_fine():
    assert causes(Attending(batch_first=False), given=sequences()) == ["samples-leak"]
    assert causes(Attending(batch_first=True), given=sequences()) == []


@pytest.mark.parametrize(
    "mix",
    [lambda x: x - x.mean(0), lambda x: x.softmax(0), lambda x: x.t().reshape(x.shape)],
    ids=["mean", "softmax", "reshape"],
)
def test_an_operation_over_the_batch_is_found(mix):
    model = net()

    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner(mix(x))

    assert causes(Mixing()) == ["samples-leak"]


@pytest.mark.parametrize("build", [convnet, contrastive, lstm_time_first])
def test_what_mixes_samples_on_purpose_is_fine(build):
    torch.manual_seed(0)
    setup = build()
    assert causes(setup.model, setup.optimizer, setup.batch, setup.forward) == []


def test_a_decoder_that_sees_the_next_token_is_found_and_one_with_a_mask_is_fine():
    torch.manual_seed(0)
    for causal, cause in ((False, ["causal-leak"]), (True, [])):
        setup = gpt(causal=causal)
        assert causes(setup.model, setup.optimizer, setup.batch, setup.forward) == cause


def test_a_masked_model_may_look_ahead():
    torch.manual_seed(0)
    setup = gpt(causal=False)
    tokens = setup.batch[0]
    labels = torch.where(torch.arange(16) % 4 == 0, tokens, -100)
    assert causes(setup.model, setup.optimizer, (tokens.clone(), labels), setup.forward) == []


@pytest.mark.parametrize("classes", [2, 3, 16])
def test_a_leak_is_found_whatever_the_number_of_classes(classes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, classes))
    given = {"x": torch.randn(16, 12), "label": torch.arange(16) % 2}
    leaking = lambda given: F.cross_entropy(model(given["x"] - given["x"].mean(0)), given["label"])  # noqa: E731
    assert causes(model, given=given, forward=leaking) == ["samples-leak"]
    assert causes(model, given=given, forward=cross_entropy(model)) == []


class BuildsInForward(nn.Module):
    """Its last layer is another one in every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 24)

    def forward(self, x):
        return nn.Linear(24, 5)(self.first(x).relu())


def test_a_layer_that_every_pass_builds_anew_is_found_and_another_network_is_fine():
    assert "unregistered-module" in causes(BuildsInForward())
    model, judge = net(), nn.Linear(5, 1)
    assert causes(model, forward=lambda given: F.softplus(-judge(model(given["x"]))).mean()) == []
