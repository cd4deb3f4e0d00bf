"""Gradients: which parameters get one, how large over depth, and what moves without one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inspection.healthy_setups import mixture, mmdit
from inspection.planted import Net, adamw, batch, causes, cross_entropy, net
from stayfinite import preflight
from stayfinite.inspection.preflight import inspect_training


class WithSpare(Net):
    """A layer that is built and not used."""

    def __init__(self, *, detached: bool = False, scale: float | None = None) -> None:
        super().__init__()
        self.spare = nn.Linear(12, 5)
        self.detached, self.scale = detached, scale

    def forward(self, x):
        result = super().forward(x)
        if self.detached:
            result = result + self.spare(x).detach()
        if self.scale is not None:
            result = result + self.scale * self.spare(x)
        return result


@pytest.mark.parametrize("detached", [False, True])
def test_a_layer_without_a_gradient_is_found_and_named(detached):
    model = WithSpare(detached=detached)
    found = preflight(model, adamw(model), batch(), cross_entropy(model), steps=0)
    assert [each.cause for each in found] == ["unused-parameters"]
    assert "spare.weight" in found[0].evidence[0]


def test_a_parameter_without_values_misses_no_gradient():
    model = net()
    model.spare = nn.Parameter(torch.zeros(0, 4))
    assert causes(model, forward=lambda given: cross_entropy(model)(given) + model.spare.sum()) == []


def test_a_layer_that_is_wired_in_is_fine():
    assert causes(WithSpare(scale=0.1)) == []


def test_a_layer_that_only_decays_is_told_apart_from_one_that_learns():
    model = WithSpare(scale=0.0)
    assert causes(model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)) == ["decay-only-updates"]
    assert causes(model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)) == ["unused-parameters"]


def test_a_gradient_of_exactly_zero_is_not_called_missing():
    model = WithSpare(scale=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    found = preflight(model, optimizer, batch(), cross_entropy(model), steps=0)
    assert found[0].evidence[0] == "the first step: trainable parameters whose gradient is exactly 0: spare.weight"


def test_gates_that_start_at_zero_are_fine():
    torch.manual_seed(0)
    setup = mmdit()
    assert causes(setup.model, setup.optimizer, setup.batch, setup.forward) == []


def test_experts_that_no_row_was_sent_to_are_fine():
    torch.manual_seed(0)
    setup = mixture()
    setup.forward(setup.batch).backward()
    assert any(expert.weight.grad is None for expert in setup.model.experts)
    setup.model.zero_grad()
    assert causes(setup.model, setup.optimizer, setup.batch, setup.forward) == []


def test_a_loss_that_is_multiplied_away_is_found():
    model = net()
    assert "zero-gradient" in causes(model, forward=lambda given: cross_entropy(model)(given) * 0.0)


def deep(activation, layers=12, gain=1.0, residual=False):
    torch.manual_seed(0)

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(12, 12) for _ in range(layers)])
            for layer in self.layers:
                nn.init.xavier_normal_(layer.weight, gain)
            self.head = nn.Linear(12, 5)

        def forward(self, x):
            for layer in self.layers:
                x = activation(layer(x)) + (x if residual else 0)
            return self.head(x)

    return Deep()


def test_gradients_that_fade_towards_the_input_are_found():
    assert causes(deep(torch.sigmoid))[0] == "vanishing-gradient"
    assert "vanishing-gradient" in causes(deep(torch.tanh, layers=40, gain=0.4))


def test_gradients_that_grow_towards_the_input_are_found():
    assert "exploding-gradient" in causes(deep(torch.sin, gain=4.0))


def test_activations_that_grow_with_depth_are_found():
    assert "bad-init" in causes(deep(lambda x: x, gain=4.0))


@pytest.mark.parametrize("activation", [torch.tanh, F.gelu, F.relu])
def test_a_deep_residual_net_is_fine(activation):
    assert causes(deep(activation, gain=0.5, residual=True)) == []


def test_units_that_are_dead_are_found():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
    assert causes(model) == []
    with torch.no_grad():
        model[0].bias.fill_(-50.0)
    assert "dead-units" in causes(model)


def test_rows_that_start_alike_are_found_and_zeros_are_fine():
    model = net()
    nn.init.zeros_(model.head.weight)
    assert causes(model) == []
    nn.init.constant_(model.second.weight, 0.1)
    assert causes(model) == ["bad-init"]


def test_an_in_place_hazard_is_found():
    model = net()

    def forward(given):
        hidden = torch.exp(model.first(given["x"]))
        loss = hidden.square().mean()
        hidden.mul_(2.0)
        return loss + hidden.exp().mean() + cross_entropy(model)(given)

    assert causes(model, forward=forward)[0] == "inplace-modification"


def test_an_in_place_relu_is_fine():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(inplace=True), nn.Linear(32, 5))
    assert causes(model) == []


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(12, 12), nn.Linear(12, 5)
        self.reentrant = reentrant

    def forward(self, x):
        x = torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=self.reentrant)
        return self.head(x)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_checkpointing_that_swallows_the_gradient_is_found():
    assert causes(Checkpointed(reentrant=True))[0] == "gradient-checkpointing-no-input-grad"
    assert causes(Checkpointed(reentrant=False)) == []


class Adapted(nn.Module):
    """A frozen layer with a low-rank adapter whose second matrix starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base = net().requires_grad_(False)
        self.down, self.up = nn.Linear(12, 2, bias=False), nn.Linear(2, 5, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_an_adapter_that_starts_at_zero_moves_little_by_decay_alone_and_is_fine():
    model = Adapted()
    assert causes(model, torch.optim.AdamW([*model.down.parameters(), *model.up.parameters()], lr=2e-5)) == []


class Encoder(nn.Module):
    def __init__(self, cut: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.encode, self.head, self.cut = nn.Linear(12, 24), nn.Linear(24, 5), cut

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cut(self.encode, x))


def no_graph(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return layer(x)


@pytest.mark.parametrize(
    "cut", [lambda layer, x: layer(x).detach(), lambda layer, x: layer(x).data, no_graph], ids=["detach", "data", "off"]
)
def test_the_line_that_cuts_a_layer_off_is_named(cut):
    model = Encoder(cut)
    found = preflight(model, adamw(model), batch(), cross_entropy(model))
    assert [each.cause for each in found if each.severity != "info"] == ["unused-parameters"]
    assert found[0].where.startswith("test_gradients.py:")


def test_a_first_gradient_that_is_huge_is_found_in_a_net_of_one_layer():
    torch.manual_seed(0)
    model = nn.RNN(8, 32, nonlinearity="relu", batch_first=True)
    nn.init.normal_(model.weight_hh_l0)
    found = causes(model, given=torch.randn(4, 30, 8), forward=lambda given: model(given)[0][:, -1].pow(2).mean())
    assert found[0] == "exploding-gradient"


def test_an_update_that_leaves_nothing_of_its_weight_is_found():
    model = net()
    assert causes(model, torch.optim.AdamW(model.parameters(), lr=3.0))[0] == "lr-too-high"


@pytest.mark.parametrize(("lr", "found"), [(0.1, []), (1e3, ["lr-too-high"])])
def test_a_lone_weight_that_starts_near_zero_is_told_from_a_rate_that_is_too_high(lr, found):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, -0.0075)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    x = torch.linspace(-1, 1, 8)[:, None]
    seen = preflight(model, optimizer, x, lambda x: F.mse_loss(model(x), 3 * x), steps=10)
    assert [each.cause for each in seen if each.severity != "info"] == found


class Routed(nn.Module):
    """Sends each row to one of many layers that bear no telling name."""

    def __init__(self, *, routed: bool) -> None:
        super().__init__()
        self.way, self.parts, self.head = (
            nn.Linear(12, 24),
            nn.ModuleList(nn.Linear(12, 12) for _ in range(24)),
            nn.Linear(12, 5),
        )
        self.routed = routed

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.way(x).softmax(-1).max(-1)
        chosen = chosen if self.routed else chosen % 3
        rows = [self.parts[int(part)](row) * weight for row, part, weight in zip(x, chosen, weights, strict=True)]
        return self.head(torch.stack(rows))


def test_parts_that_no_row_was_sent_to_are_told_from_parts_that_none_can_reach():
    torch.manual_seed(0)
    assert causes(Routed(routed=True)) == []
    assert causes(Routed(routed=False)) == ["unused-parameters"]


def test_complex_weights_are_looked_at_whole():
    class Spectral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filter = nn.Parameter(torch.randn(12, 16, dtype=torch.complex64) * 0.3)
            self.head = nn.Linear(16, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            turned = x.to(torch.complex64) @ self.filter
            return self.head((turned.real.square() + turned.imag.square() + 1e-6).sqrt())

    torch.manual_seed(0)
    model = Spectral()
    found = inspect_training(model, torch.optim.Adam(model.parameters(), lr=1e-3), batch(), cross_entropy(model))
    assert [each.cause for each in found.findings if each.severity != "info"] == []
    assert not [line for line in found.lines if "the check failed" in line.seen]
