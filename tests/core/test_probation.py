"""What follows an unusual step decides about it: nothing, a new phase, or going back."""

import json
import math
from dataclasses import asdict, fields, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from make_signals import finite_numbers
from stayfinite.core.doubts import Blame, Probation
from stayfinite.core.judge import rebuilt
from stayfinite.core.policy import Policy
from stayfinite.core.probation import (
    GROWTH,
    HARMLESS,
    Means,
    Move,
    begin_trial,
    cannot_compare,
    compared,
    follow,
    start_anew,
)
from stayfinite.core.signals import Signals
from stayfinite.core.spikes import Verdict

POLICY = Policy()
KNOWN_GOOD = Means(known_good=100)
FORWARD = Means(known_good=100, forward=True)
NOTHING = Means()
LOSS = Verdict.LOSS_SPIKE | Verdict.TAKEN
GRADIENT = Verdict.GRADIENT_SPIKE | Verdict.TAKEN


class Run:
    """Steps one by one; what was asked for is written down with its step."""

    def __init__(self, means=KNOWN_GOOD, policy=POLICY, rate=1e-3):
        self.state, self.means, self.policy, self.rate = Probation(), means, policy, rate
        self.step, self.moves, self.words = 0, [], []
        self.noise = Random(0)

    def take(self, loss, steps=1, verdict=Verdict.FINE, **more):
        """Steps with this loss and a little noise; stops where something is asked for."""
        for _ in range(steps):
            self.step += 1
            noisy = loss * (1 + 0.02 * self.noise.gauss(0, 1))
            signals = Signals(step=self.step, loss=noisy, grad_norm=1.0, lr=self.rate)
            found = follow(signals, verdict, self.state, self.policy, means=self.means, **more)
            self.state = found.state
            if found.move is not Move.NOTHING:
                self.moves.append((found.move, self.step))
                self.words.append(found.words)
                return found
        return None

    def answer(self, earlier, present, own=None):
        found = compared(self.state, self.policy, known_good=100, earlier=earlier, present=present, own=own)
        self.state = found.state
        return found


def usual(means=KNOWN_GOOD, **settings):
    run = Run(means, **settings)
    run.take(2.0, 200)
    assert not run.moves
    assert run.state.doubt is None
    return run


def test_an_unusual_step_that_nothing_follows_is_forgotten():
    run = usual()
    run.take(9.0, verdict=LOSS)
    assert run.state.doubt.step == 201
    run.take(2.0, 16)
    assert run.state.doubt is None
    assert not run.moves


def test_its_own_loss_says_nothing_about_harm():
    run = usual()
    run.take(1e6, verdict=LOSS)
    run.take(2.0, 64)
    assert not run.moves


def test_bounded_steps_that_did_no_harm_earn_more_next_time():
    run = usual()
    for _ in range(HARMLESS):
        assert run.state.factor is None
        run.take(2.0, verdict=GRADIENT, bounded=4.5)
        run.take(2.0, 16)
    assert run.state.factor == pytest.approx(GROWTH * 4.5)


def test_a_bounded_step_that_hurt_for_a_while_earns_nothing_and_loses_what_was_earned():
    run = usual()
    run.state = replace(run.state, factor=72.0, harmless=HARMLESS - 1)
    run.take(2.0, verdict=GRADIENT, bounded=72.0)
    run.take(2.0 * 1.6, 9)
    run.take(2.0, 12)
    assert run.state.doubt is None
    assert run.state.factor == pytest.approx(18.0)


def test_a_fault_earns_nothing_however_often_it_comes():
    run = usual()
    for _ in range(6):
        run.take(9000.0, verdict=LOSS | GRADIENT | Verdict.FAULT, bounded=1.0)
        run.take(2.0, 16)
    assert run.state.factor is None


# -- a new phase -------------------------------------------------------------------------------------------------------


def test_new_data_is_a_new_phase_once_the_earlier_weights_do_no_better_on_it():
    run = usual(FORWARD)
    run.take(6.0, verdict=LOSS)
    asked = run.take(6.0, 16)
    assert run.moves == [(Move.COMPARE, 209)]
    answer = run.answer(earlier=6.4, present=5.8)
    assert answer.move is Move.NEW_PHASE
    assert "loss 2.0" in answer.words.replace("1.99", "2.0").replace("2.01", "2.0")
    assert asked.words in answer.words


def test_a_new_phase_is_told_once_and_then_usual():
    run = usual(FORWARD)
    run.take(6.0, verdict=LOSS)
    run.take(6.0, 8)
    told = [run.answer(earlier=6.4, present=5.8).move]
    told.extend(run.answer(earlier=6.4, present=5.8).move for _ in range(100) if run.take(6.0) is not None)
    assert [move for move in told if move is Move.NEW_PHASE] == [Move.NEW_PHASE]
    assert Move.GO_BACK not in told
    assert run.state.doubt is None


def test_without_a_forward_pass_a_trial_of_one_step_tells_the_data_from_the_weights():
    run = usual()
    run.take(6.0, verdict=LOSS)
    assert run.take(6.0, 16).move is Move.COMPARE
    run.state = begin_trial(run.state, 100)
    found = run.take(6.1)
    assert found.move is Move.RETURN
    assert run.state.trial is None
    assert run.state.doubt.phase
    assert run.take(6.0, 100) is None


def test_a_learning_rate_that_was_raised_explains_a_higher_loss():
    run = usual(FORWARD)
    run.rate = 5e-3
    run.take(2.0)
    run.take(3.2, verdict=LOSS)
    found = run.take(3.2, 100)
    assert found.move is Move.NEW_PHASE
    assert "learning rate" in found.words
    assert run.step >= 265


def test_without_a_known_good_state_a_level_that_stays_is_lived_with():
    run = usual(NOTHING)
    run.take(6.0, verdict=LOSS)
    assert run.take(6.0, 200).move is Move.NEW_PHASE
    assert run.take(6.0, 200) is None


def test_an_easier_phase_is_no_matter():
    run = usual()
    run.take(2.0, verdict=GRADIENT, bounded=4.5)
    run.take(0.4, 300)
    assert not run.moves
    assert run.state.doubt is None


def test_an_announced_phase_starts_anew_and_keeps_what_was_earned():
    run = usual()
    run.state = replace(run.state, factor=18.0)
    run.take(6.0, verdict=LOSS)
    run.state = start_anew(run.state)
    assert run.state == Probation(factor=18.0)


# -- harm --------------------------------------------------------------------------------------------------------------


def after_a_fault_of_the_rate(means):
    run = usual(means)
    run.rate = 0.1
    run.take(2.0, 3)
    run.rate = 1e-3
    run.take(7.0, verdict=LOSS)
    return run


def test_after_a_rate_that_jumped_the_earlier_weights_are_asked_soon_and_gone_back_to():
    run = after_a_fault_of_the_rate(FORWARD)
    run.take(6.0, 8)
    assert run.moves == [(Move.COMPARE, 212)]
    answer = run.answer(earlier=2.0, present=6.0)
    assert answer.move is Move.GO_BACK
    assert "2 with known-good weights, 6 with current ones" in answer.words
    assert run.state.doubt is None
    assert run.state.losses[-1] < 3
    assert run.state.backs == ((212, 100, Blame.UPDATE),)


def test_a_trial_that_the_known_good_state_wins_stays():
    run = after_a_fault_of_the_rate(KNOWN_GOOD)
    assert run.take(6.0, 8).move is Move.COMPARE
    run.state = begin_trial(run.state, 100)
    assert run.take(2.1).move is Move.GO_BACK
    assert run.state.trial is None
    assert run.state.doubt is None


def test_levels_that_are_close_take_three_steps_of_trial():
    run = usual()
    run.rate = 0.1
    run.take(2.0, 3)
    run.rate = 1e-3
    run.take(2.5, verdict=LOSS)
    assert run.take(2.5, 8).move is Move.COMPARE
    run.state = begin_trial(run.state, 100)
    assert run.take(2.0, 2) is None
    assert run.take(2.0).move is Move.GO_BACK


def test_weights_that_changed_by_themselves_are_told_from_data_by_the_batch_of_the_unusual_step():
    for own, move in ((2.0, Move.GO_BACK), (7.0, Move.NOTHING)):
        run = usual(FORWARD)
        run.take(6.0, verdict=LOSS)
        run.take(5.0, 8)
        assert run.answer(earlier=2.0, present=5.0, own=own).move is move


def test_a_rare_batch_that_costs_the_rest_something_for_a_while_is_not_undone():
    run = usual(FORWARD)
    run.take(30.0, verdict=LOSS | GRADIENT, bounded=4.5)
    for number in range(64):
        if run.take(2.0 + 1.5 * math.exp(-number / 12)) is not None:
            assert run.answer(earlier=2.0, present=3.0, own=30.0).move is Move.NOTHING
    assert run.state.doubt is None
    assert not run.state.backs


def test_a_batch_after_which_the_level_never_comes_back_is_undone_at_the_end_of_the_probation_and_once_only():
    run = usual(FORWARD)
    for number in range(2):
        run.take(30.0, verdict=LOSS | GRADIENT, bounded=4.5)
        moves = []
        while run.state.doubt is not None:
            found = run.take(4.0)
            if found is not None and found.move is Move.COMPARE:
                found = run.answer(earlier=2.0, present=4.0, own=30.0)
            if found is not None and found.move is not Move.NOTHING:
                moves.append(found.move)
        assert moves == [Move.NEW_PHASE if number else Move.GO_BACK]
        run.take(2.0, 150)


def test_a_corrupt_shard_that_looked_like_a_phase_is_undone_when_the_old_data_is_back():
    for means in (FORWARD, KNOWN_GOOD):
        run = usual(means)
        run.take(60.0, verdict=LOSS)
        run.take(60.0, 8)
        run.state = (
            run.answer(earlier=60.0, present=50.0).state if means.forward else cannot_compare(run.state, POLICY).state
        )
        found = run.take(50.0, 12) and run.answer(earlier=60.0, present=40.0)
        assert found is None or found.move is Move.NOTHING
        asked = run.take(4.0, 40)
        assert asked.move is Move.COMPARE
        assert run.answer(earlier=2.0, present=4.0).move is Move.GO_BACK


def test_a_run_goes_back_so_often_and_no_more():
    run = after_a_fault_of_the_rate(FORWARD)
    run.take(6.0, 8)
    run.answer(earlier=2.0, present=6.0)
    assert run.state.backs
    run.state = replace(run.state, backs=run.state.backs * POLICY.max_rollbacks)
    run.take(2.0, 100)
    run.take(6.0, verdict=LOSS)
    assert run.take(6.0, 200).move is Move.NEW_PHASE


def test_present_weights_that_are_not_finite_on_a_batch_are_gone_back_from():
    run = after_a_fault_of_the_rate(FORWARD)
    run.take(6.0, 8)
    assert run.answer(earlier=2.0, present=math.inf).move is Move.GO_BACK


def test_earlier_weights_that_are_not_finite_on_this_data_are_not_gone_back_to():
    run = after_a_fault_of_the_rate(FORWARD)
    run.take(6.0, 8)
    assert run.answer(earlier=math.nan, present=6.0).move is Move.NEW_PHASE


# -- what holds for every sequence -------------------------------------------------------------------------------------

verdicts = st.sampled_from((Verdict.FINE, Verdict.FINE, Verdict.FINE, LOSS, GRADIENT, LOSS | GRADIENT))
stretches = st.tuples(finite_numbers, verdicts, st.sampled_from((None, 0.0, 1e-3, 1.0)), st.integers(1, 40))


def fields_of(state):
    """As `asdict` has it, without a copy of every number."""
    return {field.name: getattr(state, field.name) for field in fields(state)}


@settings(max_examples=50)
@given(st.lists(stretches, min_size=1, max_size=12), st.sampled_from((NOTHING, KNOWN_GOOD, FORWARD)), st.booleans())
def test_whatever_comes_the_state_can_be_saved_and_nothing_is_asked_without_means(runs, means, better):
    run = Run(means)
    for loss, verdict, rate, length in runs:
        for _ in range(length):
            run.step += 1
            signals = Signals(step=run.step + 100, loss=loss, grad_norm=1.0, lr=rate)
            found = follow(signals, verdict, run.state, POLICY, bounded=4.5, means=means)
            assert means is not NOTHING or found.move in (Move.NOTHING, Move.NEW_PHASE)
            run.state = found.state
            if found.move is Move.COMPARE:
                found = compared(run.state, POLICY, known_good=100, earlier=loss if better else 1e9, present=1e8)
                run.state = found.state
            assert rebuilt(Probation, json.loads(json.dumps(run.state, default=fields_of))) == run.state
            assert run.state.factor is None or run.state.factor >= POLICY.bound_factor


@pytest.mark.parametrize("damage", [{"losses": [math.nan]}, {"doubt": 3}, {"blame": "x"}, {"backs": [[1]]}])
def test_a_damaged_state_is_an_error_and_no_nan_comes_in(damage):
    run = usual()
    run.take(6.0, verdict=LOSS)
    plain = asdict(run.state)
    if "blame" in damage:
        plain["doubt"] |= damage
    else:
        plain |= damage
    with pytest.raises((KeyError, TypeError, ValueError)):
        rebuilt(Probation, plain)
