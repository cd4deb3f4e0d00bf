from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

from small_training import OPTIMIZERS, Training, changed
from stayfinite.errors import StateError
from stayfinite.state.landing import HostMemory
from stayfinite.state.parts import TrainingParts
from stayfinite.state.training import capture, restore

SET_BY_THE_PROCESS = ("groups[0].fused", "groups[0].foreach")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_restored_training_goes_on_bit_for_bit(optimizer: str) -> None:
    training = Training(optimizer)
    training.steps(4)
    state = capture(training.parts)
    before = training.everything()
    training.steps(3)
    expected, losses = training.everything(), training.losses[-3:]
    restore(training.parts, state)
    assert changed(before, training.everything()) == []
    training.steps(3)
    assert training.losses[-3:] == losses
    assert changed(expected, training.everything()) == []


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_fresh_training_takes_over_a_state(optimizer: str) -> None:
    old = Training(optimizer)
    old.steps(4)
    state, at = capture(old.parts), old.everything()
    old.steps(2)
    new = Training(optimizer, seed=1)
    restore(new.parts, state)
    assert changed(at, new.everything()) == []
    new.steps(2)
    assert changed(old.everything(), new.everything()) == []


def test_tensors_keep_their_identity_and_nothing_of_the_state_is_kept() -> None:
    training = Training("AdamW-fused")
    training.steps(2)
    state = capture(training.parts)
    training.steps(1)

    def living() -> dict[str, int]:
        tensors = dict(training.model.state_dict(keep_vars=True))
        tensors |= {f"{i}.{k}": v for i, s in enumerate(training.optimizer.state.values()) for k, v in s.items()}
        return {name: id(tensor) for name, tensor in tensors.items()}

    before = living()
    restore(training.parts, state)
    assert living() == before
    kept = {name: tensor.clone() for name, tensor in state.tensors.items()}
    training.steps(3)
    assert all(torch.equal(kept[name], tensor) for name, tensor in state.tensors.items())


def test_going_back_to_before_the_first_step_removes_the_moments() -> None:
    training = Training("SGD-momentum")
    before = training.everything()
    state = capture(training.parts)
    training.steps(2)
    assert training.optimizer.state
    restore(training.parts, state)
    assert changed(before, training.everything()) == []
    assert not any(training.optimizer.state.values())


def test_host_memory_is_used_again() -> None:
    training, memory = Training(), HostMemory()
    training.steps(1)
    first = capture(training.parts, memory=memory)
    places = {name: tensor.data_ptr() for name, tensor in first.tensors.items()}
    training.steps(1)
    second = capture(training.parts, memory=memory)
    assert {name: tensor.data_ptr() for name, tensor in second.tensors.items()} == places
    assert second.nbytes <= memory.nbytes < second.nbytes + 64 * len(places)


def test_a_state_of_another_architecture_is_refused_by_name_and_nothing_changes() -> None:
    state = capture(Training(width=16).parts)
    wider = Training(width=24)
    wider.steps(1)
    before = wider.everything()
    with pytest.raises(
        StateError, match=r"up\.weight \(saved \[16, 8\] float32, here \[24, 8\] float32\).* and \d+ more"
    ):
        restore(wider.parts, state)
    assert changed(before, wider.everything()) == []


def test_other_names_are_told_first_few_and_count() -> None:
    def parts(depth: int) -> TrainingParts:
        model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(depth)])
        return TrainingParts(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))

    with pytest.raises(
        StateError, match="8 in it are not in this training: 2.bias, 2.weight, 3.bias, 3.weight, 4.bias and 3 more"
    ):
        restore(parts(2), capture(parts(6)))
    with pytest.raises(StateError, match="4 of this training are not in it: 2.bias"):
        restore(parts(4), capture(parts(2)))


def test_a_group_without_parameters_takes_a_tensor_that_it_had_not() -> None:
    def parts(rate: float | torch.Tensor) -> TrainingParts:
        model = nn.Linear(2, 2)
        groups = [{"params": list(model.parameters())}, {"params": [], "lr": rate}]
        return TrainingParts(model=model, optimizer=torch.optim.SGD(groups, lr=0.1))

    saved, live = parts(torch.tensor(0.25)), parts(0.5)
    restore(live, capture(saved))
    assert torch.equal(live.optimizer.param_groups[1]["lr"], torch.tensor(0.25))


def test_other_dtype_groups_or_parts_are_refused() -> None:
    training = Training(everything=False)
    state = capture(training.parts)
    lower = Training(everything=False)
    lower.model.bfloat16()
    with pytest.raises(StateError, match="saved .* float32, here .* bfloat16"):
        restore(lower.parts, state)
    model = training.model
    two = torch.optim.AdamW([{"params": [p]} for p in model.parameters()])
    parts = TrainingParts(model=model, optimizer=two, scheduler=training.scheduler, extra=training.parts.extra)
    with pytest.raises(StateError, match="1 parameter groups, this one 6"):
        restore(parts, state)
    with pytest.raises(StateError, match="has a scheduler"):
        restore(TrainingParts(model=model, optimizer=training.optimizer, extra=training.parts.extra), state)


def test_a_part_that_refuses_its_state_leaves_everything_as_it_was() -> None:
    training = Training()
    training.steps(3)
    state = capture(training.parts)
    training.steps(2)
    before = training.everything()
    training.counter.refuses = True
    training.counter.load_state_dict, real = _refuse_once(training.counter), training.counter.load_state_dict
    with pytest.raises(StateError, match="cannot load the saved state of the counter: KeyError"):
        restore(training.parts, state)
    training.counter.load_state_dict = real
    assert changed(before, training.everything()) == []


def _refuse_once(counter: Any) -> Any:
    calls = []

    def load(state: Any) -> None:
        calls.append(state)
        counter.seen = list(state["seen"])
        if len(calls) == 1:
            raise KeyError("sum of what?")

    return load


def test_poison_is_found_where_it_sits_and_a_mask_is_none() -> None:
    training = Training()
    training.steps(2)
    assert capture(training.parts).poisoned() == []
    training.optimizer.state[training.model.up.weight]["exp_avg"][0, 0] = torch.nan
    training.model.norm.running_var[3] = torch.inf
    training.optimizer.param_groups[0]["lr"] = float("nan")
    assert capture(training.parts).poisoned() == [
        "model.norm.running_var", "optimizer.state.up.weight.exp_avg", "optimizer.groups.0.lr",
    ]  # fmt: skip


def test_large_finite_numbers_are_no_poison() -> None:
    model = nn.Linear(64, 64)
    with torch.no_grad():
        model.weight.fill_(3e38)
    parts = TrainingParts(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert capture(parts).poisoned() == []


def test_wrappers_do_not_show_in_names() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = capture(TrainingParts(model=model, optimizer=optimizer))
    restore(TrainingParts(model=nn.DataParallel(model), optimizer=optimizer), state)
    assert state.tree["parameters"] == ["0.weight", "0.bias"]


def test_parameters_that_only_the_optimizer_knows_come_back() -> None:
    model, temperature = nn.Linear(2, 2), nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.AdamW([*model.parameters(), temperature])
    parts = TrainingParts(model=model, optimizer=optimizer)
    state = capture(parts)
    (model(torch.ones(1, 2)).sum() * temperature).backward()
    optimizer.step()
    assert temperature.item() != 1.0
    restore(parts, state)
    assert temperature.item() == 1.0
    assert not any(optimizer.state.values())


def test_notes_ride_along_and_generators_can_be_left_alone() -> None:
    training = Training()
    state = capture(training.parts, notes={"step": 7, "window": (1.0, float("inf"))})
    training.steps(1)
    here = random.getstate()
    restore(training.parts, state, rng=False)
    assert state.notes == {"step": 7, "window": (1.0, float("inf"))}
    assert random.getstate() == here
