"""The schedule moves with accepted steps only."""

from __future__ import annotations

import pytest
import torch
from torch.optim import lr_scheduler

from stayfinite import Guard, OptimizerError, Policy
from stayfinite.guard.gates.schedule import Schedule
from tiny_training import Lines, TinyNet, Training, both_gates, changed


def one_cycle(optimizer):
    return lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=40)


def warm_up_then_cosine(optimizer):
    warm_up = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=3)
    return lr_scheduler.SequentialLR(optimizer, [warm_up, lr_scheduler.CosineAnnealingLR(optimizer, 20)], [3])


def restarts(optimizer):
    return lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=3, T_mult=2)


def by_lambda(optimizer):
    return lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)


def chained(optimizer):
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(optimizer, 0.9), lr_scheduler.StepLR(optimizer, 2)]
    )


class Homemade:
    """A schedule as people write it, without a way to take an advance back."""

    def __init__(self, optimizer) -> None:
        self.group = optimizer.param_groups[0]
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        self.group["lr"] = 0.01 / (1 + self.steps)


SCHEDULES = [by_lambda, one_cycle, warm_up_then_cosine, restarts, chained]


@both_gates
@pytest.mark.parametrize("optimizer", ["AdamW-fused", "SGD-fused"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_stands_still_at_a_veto(schedule, optimizer, policy):
    training = Training(optimizer, scheduler=schedule, policy=policy)
    for good in (1, 2, 3):  # vetoes right before and after the milestones too
        training.good(good)
        training.guard.flush()
        before = training.state()
        for _ in range(2):
            training.bad()
        training.guard.flush()
        assert changed(before, training.state()) == []


@both_gates
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_after_vetoes_a_schedule_walks_the_same_way(schedule, policy):
    def rates(bad_after: tuple[int, ...]) -> list[float]:
        training = Training("AdamW-fused", scheduler=schedule, policy=policy)
        seen = []
        for number in range(12):
            seen.append(training.optimizer.param_groups[0]["lr"])
            training.good()
            if number in bad_after:
                training.bad()
                training.guard.flush()
        return seen

    assert rates((0, 2, 3, 7)) == rates(())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("verdicts", ["aarara", "raaaaa", "rrraaa", "aaaarr", "ararar"])
def test_verdicts_that_arrive_late_leave_as_many_advances_as_accepted_steps(schedule, verdicts):
    torch.manual_seed(0)
    late, right = (torch.optim.SGD(TinyNet().parameters(), lr=0.01, momentum=0.9) for _ in range(2))
    ahead, plain = Schedule(schedule(late), late), schedule(right)
    for optimizer in (late, right):
        optimizer.step()
    # Each verdict is heard three steps after its step.
    for number in range(len(verdicts) + 3):
        if number < len(verdicts):
            ahead.advance_ahead()
        if number >= 3:
            ahead.settle(refused=verdicts[number - 3] == "r")
    for _ in range(verdicts.count("a")):
        plain.step()
    assert ahead._scheduler.state_dict() == plain.state_dict()
    for mine, theirs in zip(late.param_groups, right.param_groups, strict=True):
        assert {k: v for k, v in mine.items() if k != "params"} == {k: v for k, v in theirs.items() if k != "params"}


def test_a_homemade_schedule_without_state_dict_works_where_the_host_decides():
    training = Training("AdamW-fused", scheduler=Homemade)
    training.good(3)
    training.bad()
    training.good(1)
    assert training.scheduler.steps == 4


def test_a_homemade_schedule_without_state_dict_is_refused_by_the_device_gate():
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with pytest.raises(OptimizerError, match="lacks state_dict and load_state_dict") as caught:
        Guard(model, optimizer, Homemade(optimizer), policy=Policy(gate="device"))
    assert "leave gate at 'auto'" in caught.value.fix


@both_gates
def test_a_learning_rate_in_a_tensor_is_put_back_too(policy):
    torch.manual_seed(0)
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), fused=True)
    guard = Guard(model, optimizer, by_lambda(optimizer), policy=policy, console=Lines())
    rates = []
    for factor in (1.0, 1.0, float("nan"), float("nan"), 1.0):
        guard.step(model(torch.ones(2, 8)).square().mean() * factor)
        guard.flush()
        rates.append(float(optimizer.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.009, 0.0081, 0.0081, 0.0081, 0.00729])


STEPPED_TWICE = "the scheduler was stepped outside of the guard; remove scheduler.step() from the loop"


def told_of_own_scheduling(training: Training) -> list[str]:
    return [line for line in training.console.lines if STEPPED_TWICE in line]


@both_gates
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("schedule", [by_lambda, one_cycle, restarts])
@pytest.mark.parametrize("first", [False, True])
def test_a_scheduler_that_the_loop_steps_too_is_named_once_at_the_second_step(schedule, policy, first):
    training = Training("AdamW-fused", scheduler=schedule, policy=policy)
    for step in range(1, 6):
        if first:
            training.scheduler.step()
        training.good()
        if not first:
            training.scheduler.step()
        assert len(told_of_own_scheduling(training)) == (step >= 2), step


@both_gates
@pytest.mark.parametrize("schedule", [*SCHEDULES, Homemade])
def test_a_scheduler_that_only_the_guard_steps_is_never_named(schedule, policy):
    if schedule is Homemade:
        policy = Policy()
    training = Training("AdamW-fused", scheduler=schedule, policy=policy)
    training.good(3)
    training.bad()
    training.bad()
    training.good(3)
    training.scheduler.load_state_dict(training.scheduler.state_dict()) if schedule is not Homemade else None
    training.good(2)
    training.guard.close()
    assert not told_of_own_scheduling(training)


@both_gates
def test_a_scheduler_that_was_loaded_or_rolled_back_is_not_named(policy):
    later = Training("AdamW-fused", scheduler=by_lambda)
    later.good(12)
    training = Training("AdamW-fused", scheduler=by_lambda, policy=policy)
    training.good(3)
    training.scheduler.load_state_dict(dict(later.scheduler.state_dict()))
    training.good(2)
    training.guard.load_state_dict(later.guard.state_dict())
    training.scheduler.step()  # as a loop that skips ahead to where the guard stands
    training.good(2)
    assert not told_of_own_scheduling(training)


def test_a_rollback_moves_the_scheduler_back_without_a_word(tmp_path):
    training = Training("AdamW-plain", scheduler=by_lambda, policy=Policy(prove_steps=2, snapshot_share=1.0))
    training.good(12)
    assert training.guard.roll_back("a test")
    training.good(3)
    assert not told_of_own_scheduling(training)


def test_a_scheduler_that_is_not_given_to_the_guard_may_be_stepped_by_the_loop():
    torch.manual_seed(0)
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler, console = by_lambda(optimizer), Lines()
    guard = Guard(model, optimizer, console=console)
    for _ in range(4):
        guard.step(model(torch.ones(2, 8)).square().mean())
        scheduler.step()
    assert not console.lines
