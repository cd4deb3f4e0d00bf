import math
from random import Random

import pytest

from make_signals import INF, NAN, play, signals
from stayfinite.core.decision import Action, Code, Decision
from stayfinite.core.policy import Policy
from stayfinite.core.trends import TrendState, follow

POLICY = Policy()


def training(losses=None, steps=None, **columns):
    """Steps from columns: each a list, or a function of the step's number."""
    steps = steps or len(losses)
    noise = Random(0)
    rows = []
    for i in range(1, steps + 1):
        loss = losses[i - 1] if losses is not None else 2 + noise.gauss(0, 0.1)
        rows.append(signals(loss, step=i, **{name: column(i) for name, column in columns.items()}))
    return rows


def follow_all(steps, policy=POLICY):
    state, findings = TrendState(), []
    for step in steps:
        accepted = Decision(action=Action.ACCEPT, code=Code.FINITE, reason="", signals=step)
        fresh, state = follow(accepted, state, policy)
        findings.extend(fresh)
    return findings


def causes(steps):
    return [(finding.cause, finding.where) for finding in follow_all(steps)]


# Learning rate.


def test_a_learning_rate_of_zero_is_reported_once_after_ten_steps():
    assert causes(training(steps=500, lr=lambda i: 0.0)) == [("lr-zero", "step 10")]


def test_a_learning_rate_of_zero_is_reported_again_only_after_it_had_gone_away():
    lr = lambda i: 1e-3 if 100 < i <= 150 else 0.0  # noqa: E731
    assert causes(training(steps=300, lr=lr)) == [("lr-zero", "step 10"), ("lr-zero", "step 160")]


def test_a_warmup_that_starts_at_zero_and_a_schedule_that_ends_there_are_fine():
    assert causes(training(steps=500, lr=lambda i: 1e-3 * min(i - 1, 500 - i) / 500)) == []


def test_an_unknown_learning_rate_is_not_zero():
    assert causes(training(steps=100, lr=lambda i: None)) == []


# Loss that says nothing.


def test_a_loss_of_exactly_zero_is_reported_after_eight_steps():
    assert causes(training([2.0, 1.9, *[0.0] * 200])) == [("loss-collapse", "step 10")]


def test_a_loss_that_never_changes_is_reported_after_32_steps():
    assert causes(training([2.0, 1.9, *[0.693147] * 200])) == [("loss-collapse", "step 34")]


def test_a_loss_that_comes_alive_and_dies_again_is_reported_twice():
    losses = [*[0.0] * 20, *[1.0, 1.1] * 10, *[0.0] * 20]
    assert causes(training(losses)) == [("loss-collapse", "step 8"), ("loss-collapse", "step 48")]


@pytest.mark.parametrize("every", [2, 5])
def test_a_loss_that_touches_zero_now_and_then_is_fine(every):
    noise = Random(0)
    assert causes(training([0.0 if i % every else noise.uniform(0, 0.1) for i in range(300)])) == []


def test_a_loss_that_takes_few_values_is_fine():
    assert causes(training([(0.25, 0.5, 0.25, 0.75)[i % 4] for i in range(300)])) == []


# Gradients.


def test_gradients_that_are_exactly_zero_are_reported_after_eight_steps():
    steps = [signals(2 + 0.01 * (i % 7), norm=0.0, step=i) for i in range(1, 101)]
    assert causes(steps) == [("zero-gradient", "step 8")]


def test_a_few_gradients_of_zero_and_many_tiny_ones_are_fine():
    steps = [signals(2 + 0.01 * (i % 7), norm=1e-30 if i % 7 == 0 else 0.0, step=i) for i in range(1, 101)]
    assert causes(steps) == []


# Parameters without a gradient.


def silent(pattern, parameters=200, steps=900):
    return training(steps=steps, silent=pattern, parameters=lambda i: parameters)


def test_a_tenth_of_the_parameters_without_a_gradient_is_reported_once():
    assert causes(silent(lambda i: (1 << 20) - 1)) == [("unused-parameters", "step 200")]


def test_the_report_counts_the_parameters_without_a_gradient():
    (finding,) = follow_all(silent(lambda i: (1 << 20) - 1))
    assert finding.title == "20 of 200 parameters get no gradient"


def test_parameters_that_wake_up_and_fall_silent_again_are_reported_twice():
    found = causes(silent(lambda i: 0 if 300 < i <= 500 else (1 << 20) - 1, steps=1200))
    assert [cause for cause, _ in found] == ["unused-parameters"] * 2


def test_one_percent_of_silent_parameters_as_in_bert_is_fine():
    assert causes(silent(lambda i: 0b11)) == []


def test_experts_that_take_turns_are_fine():
    assert causes(silent(lambda i: ((1 << 200) - 1) ^ (1 << i % 200))) == []


def test_parameters_that_are_silent_for_less_than_the_limit_are_fine():
    assert causes(silent(lambda i: (1 << 100) - 1 if i < 199 else 0)) == []


# Divergence.


def rising(steps, start=2.0, slope=0.005, noise=0.1, seed=0):
    random = Random(seed)
    return [start + slope * i + random.gauss(0, noise) for i in range(steps)]


@pytest.mark.parametrize("start", [2.0, 0.0, -3.0])
def test_a_loss_that_rises_window_after_window_is_reported_once(start):
    (found,) = causes(training(rising(1000, start)))
    assert found == ("loss-diverging", "step 256")


def test_a_loss_that_falls_and_then_rises_is_reported_soon_after_the_turn():
    falling = rising(640, 5.2, -0.005)
    ((cause, where),) = causes(training(falling + rising(640)))
    assert cause == "loss-diverging"
    assert 640 < int(where.removeprefix("step ")) <= 640 + 5 * 64


def test_a_divergence_is_reported_again_only_after_it_had_gone_away():
    losses = rising(512) + rising(512, 4.6, -0.005) + rising(512)
    assert [cause for cause, _ in causes(training(losses))] == ["loss-diverging"] * 2


def test_a_bump_shorter_than_half_a_window_is_fine():
    losses = [level + (5 if 500 <= i < 525 else 0) for i, level in enumerate(rising(1000, 2, 0))]
    assert causes(training(losses)) == []


def test_a_bump_of_a_hundred_steps_is_fine():
    losses = [2 + 2 * math.exp(-(((i - 500) / 60) ** 2)) + noise for i, noise in enumerate(rising(1000, 0, 0))]
    assert causes(training(losses)) == []


def test_a_step_up_to_a_new_level_is_fine():
    assert causes(training(rising(500, 2, 0) + rising(500, 4, 0))) == []


@pytest.mark.parametrize(("level", "noise"), [(2.0, 0.1), (2.0, 0.02), (100.0, 3.0)])
def test_a_plateau_with_a_little_noise_is_fine(level, noise):
    for seed in range(10):
        assert causes(training(rising(2000, level, 0, noise, seed))) == []


@pytest.mark.parametrize(("level", "noise"), [(2.0, 0.5), (0.0, 0.02), (-1.0, 1.0)])
def test_a_plateau_with_much_noise_is_fine(level, noise):
    for seed in range(10):
        assert causes(training(rising(2000, level, 0, noise, seed))) == []


# What is not taken into account.


@pytest.mark.parametrize("bad", [NAN, INF])
def test_refused_steps_say_nothing_about_slow_trouble(bad):
    calm = play(training(steps=50), POLICY)
    assert play([signals(bad, 0.0, lr=0.0)] * 15, POLICY, calm.memory).memory.trends == calm.memory.trends


def test_steps_that_are_not_finite_say_nothing_even_when_they_are_only_watched():
    calm = play(training(steps=50), Policy.watch())
    assert play([signals(NAN, 0.0, lr=0.0)] * 50, Policy.watch(), calm.memory).memory.trends == calm.memory.trends


def test_every_finding_is_a_warning_with_code_evidence_and_fix():
    steps = [signals(0.0, 0.0, i, lr=0.0, silent=1, parameters=1) for i in range(1, 210)]
    findings = follow_all(steps)
    assert {finding.code for finding in findings} == {"SF216", "SF411", "SF202", "SF404"}
    for finding in findings:
        assert finding.severity == "warning"
        assert finding.evidence
        assert finding.fix


def test_the_loss_of_policy_gradients_is_no_measure():
    named = lambda _: {"advantage_std": 0.9}  # noqa: E731
    assert causes(training([0.0] * 60, named=named)) == []
    # Without a gradient it says something.
    assert ("loss-collapse", "step 8") in causes(training([0.0] * 60, named=named, norm=lambda _: 0.0))
    # Where no group has different rewards, that is the cause, and is told by its own name.
    for equal in ({"equal_groups": 1.0}, {"advantage_std": 0.0}):
        still = {"norm": lambda _: 0.0, "silent": lambda _: 0b11, "parameters": lambda _: 2}
        assert causes(training([0.0] * 600, named=lambda _, equal=equal: equal, **still)) == []
    rising = [0.001 * i for i in range(1, 600)]
    assert causes(training(rising, named=named)) == []
    # Preferences have a loss like any other.
    assert causes(training(rising, named=lambda _: {"margin": 0.1}))[0][0] == "loss-diverging"
