from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite import Guard, Policy
from stayfinite.autopsy.incidents.incident_files import read_incident
from stayfinite.autopsy.incidents.rebuild import rebuild
from stayfinite.errors import StateError
from stayfinite.state.frozen import fingerprint
from stayfinite.state.parts import TrainingParts
from stayfinite.state.training import capture, restore


class Adapted(nn.Module):
    """A frozen base with a part that learns and a running statistic."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.base = nn.Linear(8, 64).requires_grad_(False)
        self.norm = nn.BatchNorm1d(64, affine=False)
        self.head = nn.Linear(64, 1)
        with torch.no_grad():
            self.head.weight.fill_(0.01)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.base(x))))


def parts_of(
    model: nn.Module, *, keep_frozen: bool = False, holds_all: bool = False, kind: type[Optimizer] = torch.optim.AdamW
) -> TrainingParts:
    optimizer = kind([p for p in model.parameters() if holds_all or p.requires_grad], lr=0.01)
    return TrainingParts(model=model, optimizer=optimizer, keep_frozen=keep_frozen)


def stepped(model: nn.Module, parts: TrainingParts, count: int = 1) -> None:
    for seed in range(count):
        model(torch.randn(16, 8, generator=torch.Generator().manual_seed(seed))).square().mean().backward()
        parts.optimizer.step()
        parts.optimizer.zero_grad()


@pytest.mark.parametrize("holds_all", [False, True])
def test_frozen_weights_are_left_out_and_everything_that_changes_comes_back(holds_all: bool) -> None:
    model = Adapted()
    parts = parts_of(model, holds_all=holds_all)
    state = capture(parts)
    assert "model.base.weight" not in state.tensors
    assert {"model.head.weight", "model.norm.running_mean"} <= set(state.tensors)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(torch.randn(16, 8)).square().mean().backward()
    parts.optimizer.step()
    assert not torch.equal(model.head.weight, before["head.weight"])
    assert not torch.equal(model.norm.running_mean, before["norm.running_mean"])
    restore(parts, state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_by_default_they_are_kept() -> None:
    model = Adapted()
    parts = parts_of(model, keep_frozen=True)
    state = capture(parts)
    with torch.no_grad():
        model.base.weight.add_(1.0)  # as a momentum encoder is moved
    restore(parts, state)
    assert torch.equal(model.base.weight, Adapted().base.weight)


def test_a_state_is_refused_on_another_base_and_nothing_is_changed() -> None:
    state = capture(parts_of(Adapted()))
    other = Adapted(seed=1)
    with torch.no_grad():
        other.head.weight.fill_(0.5)
    with pytest.raises(StateError, match="the frozen weights differ from the saved run's") as caught:
        restore(parts_of(other), state)
    assert "same base" in caught.value.fix
    assert bool((other.head.weight == 0.5).all())
    restore(parts_of(Adapted()), state)


def test_a_frozen_weight_that_was_changed_by_hand_is_noticed() -> None:
    model = Adapted()
    parts = parts_of(model)
    state = capture(parts)
    with torch.no_grad():
        model.base.weight[0, 0] += 1e-3
    with pytest.raises(StateError, match="frozen weights"):
        restore(parts, state)


def test_a_state_with_everything_and_one_without_are_told_apart() -> None:
    with pytest.raises(StateError, match="this training leaves frozen weights"):
        restore(parts_of(Adapted()), capture(parts_of(Adapted(), keep_frozen=True)))
    with pytest.raises(StateError, match="the saved state leaves frozen weights"):
        restore(parts_of(Adapted(), keep_frozen=True), capture(parts_of(Adapted())))


def test_a_state_from_before_a_weight_was_thawed_does_not_fit_any_more() -> None:
    model = Adapted()
    parts = parts_of(model)
    state = capture(parts)
    model.base.bias.requires_grad_(True)
    with pytest.raises(StateError, match="different weights are frozen than in the saved state: base.bias"):
        restore(parts, state)
    assert "model.base.bias" in capture(parts).tensors


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_weight_that_was_thawed_once_is_kept_also_where_it_is_frozen_again(kind: type[Optimizer]) -> None:
    model = Adapted()
    parts = parts_of(model, holds_all=True, kind=kind)
    model.base.bias.requires_grad_(True)
    assert "model.base.bias" in capture(parts).tensors
    stepped(model, parts)
    model.base.bias.requires_grad_(False)
    state = capture(parts)
    assert "model.base.bias" in state.tensors
    assert "model.base.weight" not in state.tensors
    again = Adapted()  # as the next process builds it: frozen, with the base's own values
    parts_again = parts_of(again, holds_all=True, kind=kind)
    restore(parts_again, state)
    assert torch.equal(again.base.bias, model.base.bias)
    assert "model.base.bias" in capture(parts_again).tensors


def test_a_state_that_has_the_frozen_weights_loads_where_they_would_be_left_out_now() -> None:
    """As one from before frozen weights that the optimizer holds were left out."""
    model = Adapted()
    parts = parts_of(model, holds_all=True)
    parts.keep(dict(model.named_parameters()))
    stepped(model, parts)
    state = capture(parts)
    assert "model.base.weight" in state.tensors
    other = Adapted(seed=1)
    restored = parts_of(other, holds_all=True)
    restore(restored, state)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), other.parameters(), strict=True))
    assert "model.base.weight" in capture(restored).tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.bool])
def test_the_fingerprint_sees_every_number_and_its_place(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    tensor = (torch.randn(1003) * 50).to(dtype) if dtype is not torch.bool else torch.rand(1003) > 0.5
    mark = fingerprint({"a": tensor})
    assert fingerprint({"a": tensor.clone()}) == mark
    assert fingerprint({"b": tensor}) != mark
    for place in (0, 500, 1002):
        other = tensor.clone()
        other[place] = ~other[place] if dtype is torch.bool else other[place] + 1
        assert fingerprint({"a": other}) != mark, place
    assert fingerprint({"a": tensor.flip(0)}) != mark
    assert fingerprint({"a": torch.empty(0, dtype=dtype)}) != mark


def trained(
    run_dir: Path, model: Adapted, steps: int, *, keep_frozen: bool = False, holds_all: bool = False, thaw: int = 99
) -> int:
    """Train to so many steps, from where the run directory stands; returns where that was."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if holds_all or p.requires_grad], lr=0.01)
    policy = Policy(checkpoint_steps=4, keep_frozen=keep_frozen)
    with Guard(model, optimizer, run_dir=run_dir, policy=policy) as guard:
        resumed = guard.resume()
        for step in range(resumed, steps):
            model.base.bias.requires_grad_(step >= thaw)
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
            guard.step((model(x) - 1).square().mean())
        guard.checkpoint()
    return resumed


@pytest.mark.parametrize("holds_all", [False, True])
def test_a_run_resumes_on_its_base_and_ends_with_the_same_bits(tmp_path: Path, holds_all: bool) -> None:
    whole, first, second = Adapted(), Adapted(), Adapted()
    trained(tmp_path / "whole", whole, 12, holds_all=holds_all)
    trained(tmp_path / "cut", first, 6, holds_all=holds_all)
    assert trained(tmp_path / "cut", second, 12, holds_all=holds_all) == 6
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters(), second.parameters(), strict=True))
    held = sum(file.stat().st_size for file in (tmp_path / "cut" / "checkpoints").rglob("*.safetensors"))
    trained(tmp_path / "all", Adapted(), 12, keep_frozen=True)
    assert held < sum(file.stat().st_size for file in (tmp_path / "all" / "checkpoints").rglob("*.safetensors"))


@pytest.mark.parametrize("holds_all", [False, True])
def test_a_run_does_not_resume_on_another_base(tmp_path: Path, holds_all: bool) -> None:
    trained(tmp_path, Adapted(), 6, holds_all=holds_all)
    with pytest.raises(StateError, match="frozen weights"):
        trained(tmp_path, Adapted(seed=1), 12, holds_all=holds_all)


@pytest.mark.parametrize("thaw", [4, 9])
def test_a_run_that_thaws_a_weight_resumes_to_the_same_bits(tmp_path: Path, thaw: int) -> None:
    whole, first, second = Adapted(), Adapted(), Adapted()
    trained(tmp_path / "whole", whole, 12, holds_all=True, thaw=thaw)
    trained(tmp_path / "cut", first, 6, holds_all=True, thaw=thaw)
    assert trained(tmp_path / "cut", second, 12, holds_all=True, thaw=thaw) == 6
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("holds_all", [False, True])
def test_an_incident_without_the_frozen_weights_is_run_again_on_the_base(tmp_path: Path, holds_all: bool) -> None:
    model = Adapted()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if holds_all or p.requires_grad], lr=0.01)

    def forward(batch: Tensor) -> Tensor:
        return model(batch).square().mean().log()

    policy = Policy(keep_frozen=False, autopsy_seconds=0)
    with Guard(model, optimizer, run_dir=tmp_path, policy=policy, forward=forward) as guard:
        for step in range(4):
            guard.step(guard.forward(torch.randn(16, 8, generator=torch.Generator().manual_seed(step))))
        guard.step(guard.forward(torch.full((16, 8), torch.nan)))
    incident = read_incident(tmp_path / "incidents" / "0001")
    again = Adapted()
    rebuilt = rebuild(incident, again, lambda batch: again(batch).square().mean().log())
    assert any("2 frozen tensors come from build()" in note for note in rebuilt.notes)
    assert torch.equal(again.head.weight, model.head.weight)
