from collections import Counter
from random import Random

import pytest

from healthy_trainings import TRAININGS, constant_loss, nearly_solved, negative_losses, two_kinds_of_batches
from make_signals import play, signals
from quick_ones import quick_ones
from stayfinite.core.decision import Action
from stayfinite.core.ladder import LadderState, decide
from stayfinite.core.policy import Policy

POLICY = Policy.refuse_spikes()
SEEDS, STEPS = 20, 2000

# Vetoes that a healthy training of 2000 steps may suffer: in the mean over all seeds, and in the worst of them.
ALLOWED = {nearly_solved: (1, 4), negative_losses: (0.2, 2), two_kinds_of_batches: (4, 16)}


@pytest.mark.parametrize(
    "training",
    quick_ones(TRAININGS, constant_loss, nearly_solved, two_kinds_of_batches),
    ids=lambda training: training.__name__,
)
def test_a_healthy_training_is_hardly_ever_refused_a_step(training):
    vetoes = []
    for seed in range(1 if training is constant_loss else SEEDS):
        state, actions = LadderState(), Counter()
        for i, (loss, norm) in enumerate(training(Random(seed), STEPS), start=1):
            decision, state = decide(signals(loss, norm, i), state, POLICY)
            actions[decision.action] += 1
        assert not actions["stop"]
        vetoes.append(actions["veto"])
    mean, worst = ALLOWED.get(training, (0, 0))
    assert sum(vetoes) / len(vetoes) <= mean
    assert max(vetoes) <= worst


@pytest.mark.parametrize("training", [t for t in TRAININGS if t is not constant_loss], ids=lambda t: t.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_a_spike_in_a_healthy_training_is_refused_all_the_same(training, seed):
    samples = list(training(Random(seed), 400))
    highest_loss, highest_norm = (max(column[-128:]) for column in zip(*samples, strict=True))
    calm = play((signals(loss, norm, i) for i, (loss, norm) in enumerate(samples, start=1)), POLICY)
    assert play([signals(samples[-1][0], 100 * highest_norm)], POLICY, calm.memory).refused
    assert play([signals(30 + 30 * highest_loss, samples[-1][1])], POLICY, calm.memory).refused


@pytest.mark.slow
@pytest.mark.parametrize("training", TRAININGS, ids=lambda training: training.__name__)
def test_by_default_no_healthy_step_is_refused_and_hardly_any_is_bounded(training):
    bounded = []
    for seed in range(1 if training is constant_loss else SEEDS):
        played = play(signals(loss, norm, i) for i, (loss, norm) in enumerate(training(Random(seed), STEPS), start=1))
        assert not played.refused
        bounded.append(sum(decision.action is Action.BOUND for decision in played.decisions))
    # Two kinds of batches, one with ten times the norm: the first few are bounded, and then more is allowed.
    assert max(bounded) <= (12 if training is two_kinds_of_batches else 2)


@pytest.mark.parametrize("training", [t for t in TRAININGS if t is not constant_loss], ids=lambda t: t.__name__)
def test_a_huge_gradient_in_a_healthy_training_is_bounded(training):
    samples = list(training(Random(0), 400))
    highest = max(norm for _, norm in samples[-128:])
    calm = play(signals(loss, norm, i) for i, (loss, norm) in enumerate(samples, start=1))
    (decision,) = play([signals(samples[-1][0], 1e4 * highest)], memory=calm.memory).decisions
    assert decision.action is Action.BOUND
    assert decision.limit < 100 * highest
