"""A schedule over minutes: it reaches its end with them, and a resumed run has what is left."""

import json
import math
from itertools import pairwise

import pytest
import torch

from stayfinite.recipes.running.optimizing import schedule_for
from stayfinite.recipes.running.timing import EvaluationBudget, TimedSchedule


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def schedule(clock, shape="linear", **settings):
    weight = torch.nn.Parameter(torch.zeros(1))
    groups = [{"params": [weight], "lr": 1.0}, {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.5}]
    return TimedSchedule(
        torch.optim.SGD(groups, lr=1.0), shape, **{"warmup": 0.1, "minutes": 10, **settings}, clock=clock
    )


def started(shape="linear", **settings):
    clock = Clock()
    made = schedule(clock, shape, **settings)
    made.start()
    return clock, made


def at(made, clock, minutes, *, step=0.1):
    """The rate after so many minutes of even steps."""
    until = 1000.0 + 60 * minutes
    while clock.now < until - 1e-6:
        clock.now = min(until, clock.now + 60 * step)
        made.step()
    return made.get_last_lr()[0]


def test_it_rises_falls_and_is_0_when_the_time_is_up():
    clock = Clock()
    made = schedule(clock)
    assert 0 < made.get_last_lr()[0] <= 0.01
    made.start()
    assert at(made, clock, 0.5) == pytest.approx(0.5)
    assert at(made, clock, 1.0) == pytest.approx(1.0)
    assert at(made, clock, 5.5) == pytest.approx(0.5)
    assert not made.over
    assert at(made, clock, 10.0) == pytest.approx(0.0, abs=1e-6)
    assert made.over
    assert at(made, clock, 99.0) == pytest.approx(0.0)


def test_each_group_keeps_its_own_height():
    clock, made = started()
    at(made, clock, 1.0)
    assert made.get_last_lr() == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize(
    ("shape", "middle"), [("cosine", 0.5), ("constant", 1.0), ("inverse_sqrt", math.sqrt(0.1 / 0.55))]
)
def test_other_shapes(shape, middle):
    clock, made = started(shape)
    assert at(made, clock, 5.5) == pytest.approx(middle)


def test_steps_count_where_they_end_first():
    _, made = started(steps=4, warmup=0.0)
    rates = []
    for _ in range(4):
        made.step()
        rates += made.get_last_lr()[:1]
    assert rates == pytest.approx([0.75, 0.5, 0.25, 0.0])
    assert not made.over


def test_time_before_the_first_step_does_not_count():
    clock = Clock()
    made = schedule(clock)
    clock.now += 3600
    assert made.seconds == 0


def test_a_resumed_run_has_the_time_that_is_left():
    clock, first = started()
    at(first, clock, 6.0)
    later = Clock()
    second = schedule(later)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.seconds == pytest.approx(360)
    assert second.get_last_lr() == first.get_last_lr()
    second.start()
    later.now += 60 * 4.1
    assert second.over


def test_a_rollback_within_a_process_gives_no_time_back():
    clock, made = started()
    at(made, clock, 2.0)
    state = made.state_dict()
    at(made, clock, 6.0)
    made.load_state_dict(state)
    assert made.seconds == pytest.approx(360)
    assert made.share == pytest.approx(0.6)


@pytest.mark.parametrize("pause", [30.0, 200.0])
def test_a_pause_moves_the_rate_no_further_than_a_step_and_is_made_up_for_until_the_end(pause):
    (clock, made), (even, other) = started(), started()
    before = at(made, clock, 0.3, step=1 / 60)
    assert before == pytest.approx(0.3)
    clock.now += pause  # an incident is explained, within the warmup
    rates = []
    while clock.now < 1600.0 - 1e-6:
        clock.now += 1.0
        made.step()
        rates += made.get_last_lr()[:1]
    assert rates[0] < before + 0.04
    steps = [abs(later - earlier) for earlier, later in pairwise([before, *rates])]
    assert max(steps) < 1.6 * at(other, even, 1 / 60, step=1 / 60)
    assert max(rates) == pytest.approx(1.0, abs=0.03)
    assert rates[-1] == pytest.approx(0.0, abs=1e-6)
    assert made.over


def test_steps_that_have_become_slower_for_good_are_usual_after_a_while():
    clock, made = started()
    at(made, clock, 1.0, step=0.01)
    at(made, clock, 9.0, step=0.1)
    assert made.share == pytest.approx(0.9, abs=0.02)


def test_more_minutes_for_a_run_whose_time_was_up_raise_its_rate_again():
    clock, first = started()
    assert at(first, clock, 10.0) == pytest.approx(0.0, abs=1e-6)
    second = schedule(Clock(), minutes=20)
    second.load_state_dict(first.state_dict())
    assert second.share == pytest.approx(0.5)
    assert second.get_last_lr()[0] == pytest.approx(0.5 / 0.9)


def test_a_state_from_before_pauses_were_known_is_taken_up():
    made = schedule(Clock())
    made.load_state_dict({"version": 1, "taken": 7, "seconds": 300.0})
    assert made.share == pytest.approx(0.5)


def test_a_run_may_gain_or_lose_its_minutes_when_it_goes_on():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    by_steps = schedule_for(optimizer, "linear", warmup=2, steps=10)
    for _ in range(6):
        optimizer.step()
        by_steps.step()
    timed = schedule(Clock(), minutes=20, steps=10)
    timed.load_state_dict(by_steps.state_dict())
    assert timed.share == pytest.approx(0.6)
    again = schedule_for(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0), "linear", warmup=2, steps=10)
    again.load_state_dict(timed.state_dict())
    for each in (by_steps, again):
        each.optimizer.step()
        each.step()
    assert again.get_last_lr() == by_steps.get_last_lr() == pytest.approx([0.375])


def test_an_evaluation_is_affordable_where_it_takes_a_tenth_of_the_time_since_the_last_one():
    clock = Clock()
    evaluation_budget = EvaluationBudget(clock)
    assert evaluation_budget.affordable(1000)  # nobody knows yet
    with evaluation_budget.of(200):
        clock.now += 60.0
    clock.now += 599.0
    assert not evaluation_budget.affordable(200)
    assert evaluation_budget.affordable(100)  # half as many take half as long
    clock.now += 2.0
    assert evaluation_budget.affordable(200)
