"""What the forward pass itself changes is put back when its step is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stayfinite import Action, Policy
from tiny_training import Training, both_gates, changed, fingerprint


def with_batch_norm() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def with_spectral_norm() -> nn.Sequential:
    first = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 16))
    return nn.Sequential(first, nn.ReLU(), nn.Linear(16, 4))


class MeanByAssignment(nn.Module):
    """Keeps a running mean as people write it: by binding a new tensor to the buffer's name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        out = self.layer(x)
        self.mean = 0.9 * self.mean + 0.1 * out.detach().mean(0)
        return out - self.mean


class Counting(nn.Module):
    """Counts its calls in a buffer, and holds a large table that nobody changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("table", torch.zeros(100_000))

    def forward(self, x):
        self.calls += 1
        return self.layer(x)


def bad_batch_step(training: Training) -> None:
    """A NaN in the input, so that the forward pass spoils every statistic on its way."""
    x = torch.randn(32, 8)
    x[3, 2] = float("nan")
    training.guard.step(training.model(x).square().mean())


@both_gates
@pytest.mark.parametrize("build", [with_batch_norm, with_spectral_norm, MeanByAssignment, Counting])
def test_a_nan_batch_does_not_stay_in_the_buffers(build, policy):
    torch.manual_seed(0)
    training = Training("AdamW-fused", model=build(), policy=policy)
    before = training.settled(3)
    bad_batch_step(training)
    training.guard.flush()
    assert training.guard.decisions[-1].refused
    assert changed(before, training.state()) == []
    training.good(2)
    assert all(bool(buffer.isfinite().all()) for buffer in training.model.buffers())


@both_gates
@pytest.mark.parametrize("build", [with_batch_norm, MeanByAssignment])
def test_a_nan_batch_at_the_very_first_step_does_not_stay_in_the_buffers(build, policy):
    torch.manual_seed(0)
    training = Training("AdamW-fused", model=build(), policy=policy)
    before = fingerprint(buffers=dict(training.model.named_buffers()))
    bad_batch_step(training)
    training.guard.flush()
    assert changed(before, fingerprint(buffers=dict(training.model.named_buffers()))) == []


@both_gates
@pytest.mark.parametrize(("times", "stays"), [(3.0, False), (1e4, True)])
def test_a_bounded_step_moves_running_statistics_unless_its_loss_shows_a_fault(policy, times, stays):
    torch.manual_seed(0)
    training = Training("AdamW-fused", model=_seeded(with_batch_norm), policy=policy, max_norm=None)
    training.settled(30)
    before, weight = training.model[1].running_var.clone(), training.model[3].weight.detach().clone()
    x = torch.randn(32, 8)
    training.guard.step(times**2 * F.mse_loss(training.model(times * x), torch.ones(32, 4)))
    training.guard.flush()
    decision = training.guard.decisions[-1]
    assert (decision.action, decision.fault) == (Action.BOUND, stays)
    assert torch.equal(training.model[1].running_var, before) is stays
    assert not torch.equal(training.model[3].weight, weight)


@both_gates
def test_buffers_move_in_a_healthy_loop_exactly_as_in_a_plain_one(policy):
    mine, plain = (Training("AdamW-fused", model=_seeded(with_batch_norm), policy=policy) for _ in range(2))
    for _ in range(5):
        mine.good()
        plain.plain()
    assert changed(plain.state(), mine.state()) == []


@both_gates
def test_statistics_loaded_after_the_guard_was_built_are_not_undone_by_a_veto(policy):
    trained = Training("AdamW-fused", model=_seeded(with_batch_norm))
    trained.good(3)
    resumed = Training("AdamW-fused", model=with_batch_norm(), policy=policy)
    resumed.model.load_state_dict(trained.model.state_dict())
    resumed.guard.load_state_dict(trained.guard.state_dict())
    before = fingerprint(model=resumed.model.state_dict())
    bad_batch_step(resumed)
    resumed.guard.flush()
    assert resumed.guard.decisions[-1].refused
    assert changed(before, fingerprint(model=resumed.model.state_dict())) == []


@both_gates
@pytest.mark.parametrize("way", ["in place", "assigned", "loaded"])
def test_what_the_loop_writes_to_a_buffer_between_steps_outlives_a_veto(way, policy):
    model = _seeded(with_batch_norm)
    training = Training("AdamW-fused", model=model, policy=policy, forward=lambda x: model(x).square().mean())
    guard, statistics = training.guard, model[1]
    for _ in range(2):
        guard.step(guard.forward(torch.randn(32, 8)))
    if way == "in place":
        statistics.running_mean.fill_(0.25)
    elif way == "assigned":
        statistics.running_mean = torch.full_like(statistics.running_mean, 0.25)
    else:
        model.load_state_dict(_seeded(with_batch_norm).state_dict())
    guard.flush()
    before = training.state()
    x = torch.randn(32, 8)
    x[3, 2] = float("nan")
    # Two passes for one step: what the first one does to the statistics is undone as well.
    guard.backward(guard.forward(torch.randn(32, 8)))
    guard.backward(guard.forward(x))
    guard.step()
    guard.flush()
    assert guard.decisions[-1].refused
    assert changed(before, training.state()) == []


def test_watching_leaves_the_buffers_as_the_forward_pass_made_them():
    training = Training(model=_seeded(with_batch_norm), policy=Policy.watch())
    training.good(2)
    bad_batch_step(training)
    assert training.model[1].running_mean.isnan().any()


@both_gates
def test_the_buffers_of_a_compiled_model_are_put_back(policy):
    torch._dynamo.reset()
    training = Training(
        "AdamW-fused", model=torch.compile(_seeded(with_batch_norm), backend="aot_eager"), policy=policy
    )
    before = training.settled(2)
    bad_batch_step(training)
    training.guard.flush()
    assert changed(before, training.state()) == []


def _seeded(build):
    torch.manual_seed(0)
    return build()
