"""A guarded training: signs that come before the loss are told, no step is refused for one, and healthy bits stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from guarded_training import events
from stayfinite import Guard, Policy
from tiny_training import Lines, changed, fingerprint


class TinyAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24, bias=False)
        self.gain = 1.0

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention((self.gain * q)[:, None], k[:, None], v[:, None])[:, 0]


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.preference = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.gate(x) + self.preference).softmax(-1)
        return sum(weights[..., place : place + 1] * expert(x) for place, expert in enumerate(self.experts))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mixture = TinyAttention(), Mixture()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.dropout = nn.Dropout(0.1)
        self.size = 1.0

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.mixture(x + self.attention(x)))
        x = self.layers[0](x) * self.size
        return self.layers[1](x) / self.size


def attention_grows(net: Net, _optimizer: Any) -> None:
    net.attention.gain = 2000.0


def router_collapses(net: Net, _optimizer: Any) -> None:
    with torch.no_grad():
        net.mixture.gate.bias.copy_(torch.tensor([50.0, 0.0, 0.0, 0.0]))


def activation_jumps(net: Net, _optimizer: Any) -> None:
    with torch.no_grad():
        net.layers[0].bias += 3e4
        net.layers[1].weight /= 1e4


def updates_jump(_net: Net, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 0.03


def train(run_dir: Path, *, every: int = 1, fault: Callable[..., None] | None = None) -> tuple[Guard, dict[str, Any]]:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    policy = Policy.only_nonfinite(sample_every=every)
    guard = Guard(net, optimizer, policy=policy, run_dir=run_dir, console=Lines())
    data = torch.Generator().manual_seed(2)
    for step in range(30):
        if fault is not None and step == 24:
            fault(net, optimizer)
        x = torch.randn(6, 5, 8, generator=data)
        guard.step((net(x) - x).square().mean())
    guard.close()
    everything = fingerprint(model=dict(net.state_dict()), rng=torch.get_rng_state())
    return guard, everything


PLANTED = {
    "attention-logit": attention_grows,
    "router-share": router_collapses,
    "activation": activation_jumps,
    "update-ratio": updates_jump,
}


@pytest.mark.parametrize("signal", PLANTED)
def test_a_sign_is_told_with_its_place_and_no_step_is_refused_for_it(tmp_path, signal):
    guard, _ = train(tmp_path, fault=PLANTED[signal])
    (told,) = [each for each in events(tmp_path, "early-sign") if each["signal"] == signal]
    assert told["step"] == 26
    places = {"attention-logit": "attention", "router-share": "mixture.gate", "activation": "layers.0"}
    assert told["place"] == places.get(signal, "")
    assert not any(decision.refused for decision in guard.decisions)


def test_a_healthy_run_is_told_nothing_of_and_ends_with_the_same_bits(tmp_path):
    _, looked_at = train(tmp_path / "on")
    _, plain = train(tmp_path / "off", every=0)
    assert events(tmp_path / "on", "early-sign") == []
    assert changed(looked_at, plain) == []
