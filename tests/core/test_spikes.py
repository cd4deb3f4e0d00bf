import math
from dataclasses import replace
from random import Random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from make_signals import INF, NAN, finite_numbers, numbers, small_policies
from stayfinite.core.policy import Policy
from stayfinite.core.spikes import (
    IMPLAUSIBLE,
    SpikeState,
    Verdict,
    advance,
    compress_loss,
    compress_norm,
    examine,
    limits,
    limits_of_return,
)

POLICY = Policy.refuse_spikes()
BOUND = Policy()


def said(loss, norm, state, policy):
    return examine(loss, norm, state, policy)[0]


def after(samples, policy=POLICY, state=None):
    state = state or SpikeState()
    for loss, norm in samples:
        verdict, limit = examine(loss, norm, state, policy)
        state = advance(loss, norm, verdict, state, policy, limit)
    return state


def normal_noise(steps, sigma):
    """The quantiles of a normal distribution in a random order: a sample whose spread is exactly known."""
    values = [NormalDist(0, sigma).inv_cdf((i + 0.5) / steps) for i in range(steps)]
    return Random(0).sample(values, steps)


@pytest.mark.parametrize(("sigmas", "verdict"), [(5.8, Verdict.FINE), (6.2, Verdict.LOSS_SPIKE)])
def test_a_loss_six_sigma_above_128_quiet_steps_is_refused(sigmas, verdict):
    state = after((math.sinh(2 + noise), 1.0) for noise in normal_noise(128, 0.1))
    assert said(math.sinh(2 + sigmas * 0.1), 1.0, state, POLICY) is verdict


@pytest.mark.parametrize(("sigmas", "verdict"), [(5.8, Verdict.FINE), (6.2, Verdict.GRADIENT_SPIKE)])
def test_a_gradient_norm_six_sigma_above_128_quiet_steps_is_refused(sigmas, verdict):
    state = after((2.0, math.exp(noise)) for noise in normal_noise(128, 0.4))
    assert said(2.0, math.exp(sigmas * 0.4), state, POLICY) is verdict


def test_a_step_may_spike_in_loss_and_gradient_at_once():
    state = after([(2.0, 1.0)] * 20)
    assert said(100.0, 100.0, state, POLICY) == Verdict.LOSS_SPIKE | Verdict.GRADIENT_SPIKE


def test_a_fiftyfold_loss_is_refused_already_at_step_6():
    state = after((2.0 + noise, 1.0) for noise in (0.3, -0.2, 0.1, -0.4, 0.2))
    assert said(100.0, 1.0, state, POLICY) is Verdict.LOSS_SPIKE


def test_the_bound_is_wider_during_the_warmup():
    few, many = after([(2.0, 1.0)] * (POLICY.warmup - 1)), after([(2.0, 1.0)] * POLICY.warmup)
    assert said(4.0, 1.0, few, POLICY) is Verdict.FINE
    assert said(4.0, 1.0, many, POLICY) is Verdict.LOSS_SPIKE


@pytest.mark.parametrize("samples", [[], [(2.0, 1.0)]])
def test_nothing_finite_is_a_spike_without_two_samples_to_compare_with(samples):
    assert said(1e30, 1e30, after(samples), POLICY) is Verdict.FINE


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_is_refused_from_the_first_step_on(bad):
    assert said(bad, 1.0, SpikeState(), POLICY) is Verdict.NOT_FINITE
    assert said(1.0, bad, SpikeState(), POLICY) is Verdict.NOT_FINITE


def test_a_loss_far_below_the_usual_is_no_spike():
    state = after([(2.0, 1.0)] * 50)
    assert said(-1e6, 1e-6, state, POLICY) is Verdict.FINE


def test_infinite_sigmas_switch_the_spike_test_off_and_nothing_else():
    policy = Policy.refuse_spikes(sigmas=INF)
    state = after([(2.0, 1.0)] * 50, policy)
    assert said(1e30, 1e30, state, policy) is Verdict.FINE
    assert said(NAN, 1.0, state, policy) is Verdict.NOT_FINITE


def test_a_height_that_was_accepted_lately_is_accepted_again_and_a_little_more_too():
    noise = normal_noise(128, 0.01)
    state = after((2.0 + (4.0 if i < 15 and i % 4 == 2 else 0) + noise[i], 1.0) for i in range(64))
    assert said(6.0, 1.0, state, POLICY) is Verdict.FINE
    assert said(6.15, 1.0, state, POLICY) is Verdict.FINE
    assert said(9.0, 1.0, state, POLICY) is Verdict.LOSS_SPIKE


def test_a_gradient_norm_of_zero_is_no_spike_and_enters_no_window():
    state = after([(2.0, 1.0)] * 5 + [(2.0, 0.0)] * 3)
    assert (len(state.losses), state.norms) == (8, (0.0,) * 5)


def test_a_full_window_forgets_its_oldest_sample():
    state = after([(float(i), 1.0) for i in (1, 2, 3, 4, 5)], Policy.refuse_spikes(window=4, warmup=2))
    assert state.losses == tuple(map(compress_loss, (2.0, 3.0, 4.0, 5.0)))


def test_a_level_that_stays_is_accepted_after_the_allowed_strikes_and_starts_a_new_window():
    state = after([(2.0, 1.0)] * 128)
    for _ in range(POLICY.level_change_after):
        verdict = said(8.0, 1.0, state, POLICY)
        assert verdict is Verdict.LOSS_SPIKE
        state = advance(8.0, 1.0, verdict, state, POLICY)
    verdict = said(8.0, 1.0, state, POLICY)
    assert verdict == Verdict.LOSS_SPIKE | Verdict.NEW_LEVEL
    assert not verdict.refuses
    assert advance(8.0, 1.0, verdict, state, POLICY) == SpikeState(
        (compress_loss(8.0),), (0.0,), strikes=0, quiet=1, highest=2.0
    )


def test_strikes_are_forgiven_after_a_whole_window_without_one():
    policy = Policy.refuse_spikes(window=16)
    struck = after([(2.0, 1.0)] * 16 + [(100.0, 1.0)] * 3, policy)
    assert struck.strikes == 3
    assert after([(2.0, 1.0)] * 15, policy, struck).strikes == 3
    assert after([(2.0, 1.0)] * 16, policy, struck).strikes == 0


def test_steps_that_are_not_finite_say_nothing_about_the_level():
    state = after([(2.0, 1.0)] * 20)
    assert after([(NAN, 1.0), (1.0, INF), (-INF, NAN)] * 10, state=state) == state


@pytest.mark.parametrize("bits", range(32))
def test_a_verdict_with_the_bit_for_not_finite_always_refuses(bits):
    verdict = Verdict(bits)
    assert verdict.refuses == bool(bits & 1 or (bits and not bits & 24))


@given(small_policies, st.lists(st.tuples(numbers, numbers), max_size=50))
def test_windows_hold_only_finite_values_and_refused_samples_leave_them_as_they_were(policy, samples):
    state = SpikeState()
    for loss, norm in samples:
        verdict, limit = examine(loss, norm, state, policy)
        new = advance(loss, norm, verdict, state, policy, limit)
        if verdict.refuses:
            assert (new.losses, new.norms) == (state.losses, state.norms)
        else:
            assert new.losses[-1] == compress_loss(loss)
        assert all(map(math.isfinite, (*new.losses, *new.norms)))
        assert max(len(new.losses), len(new.norms)) <= policy.window
        state = new


@given(small_policies, finite_numbers, finite_numbers, st.lists(st.tuples(numbers, numbers), max_size=30))
def test_one_and_the_same_finite_step_is_accepted_after_a_bounded_number_of_refusals(policy, loss, norm, before):
    state = after(before, policy)
    verdicts = []
    for _ in range(policy.level_change_after + 5):
        verdicts.append(said(loss, norm, state, policy))
        state = advance(loss, norm, verdicts[-1], state, policy)
    assert not any(verdict.refuses for verdict in verdicts[policy.level_change_after :])


@given(finite_numbers, finite_numbers)
def test_compressing_keeps_the_order(one, other):
    low, high = sorted((one, other))
    assert compress_loss(low) <= compress_loss(high)
    assert compress_norm(low) <= compress_norm(high)


def test_a_spike_by_a_hair_is_still_there_when_a_re_run_is_a_little_lower():
    state, policy = window_of(losses=[2.3, 2.4, 2.5, 2.35] * 8), Policy()
    usual = limits(state, policy)["loss"]
    again = limits_of_return(state, policy, loss=usual * 1.001, norm=1.0)["loss"]
    assert 2.5 < again < 0.9 * usual


@given(small_policies, st.lists(st.floats(0.1, 10.0), min_size=4, max_size=20), numbers, numbers)
def test_limits_of_a_return_are_never_above_the_usual_ones_nor_below_what_is_usual(policy, losses, loss, norm):
    state = window_of(losses)
    usual = limits(state, policy)
    again = limits_of_return(state, policy, loss=loss, norm=norm)
    assert again.keys() == usual.keys()
    for name, seen in (("loss", loss), ("grad_norm", norm)):
        if name in usual:
            assert again[name] <= usual[name]
            if not seen > usual[name]:
                assert again[name] == usual[name]
    if "loss" in again:
        assert again["loss"] >= min(losses) * 0.999


def window_of(losses):
    return SpikeState(losses=tuple(map(compress_loss, losses)), norms=tuple(compress_norm(1.0) for _ in losses))


# -- bounded instead of refused ----------------------------------------------------------------------------------------


def test_a_finite_spike_is_taken_and_its_norm_enters_the_window_as_it_was_bounded():
    state = after([(2.0, 1.0)] * 64, BOUND)
    verdict, limit = examine(2.0, 1000.0, state, BOUND)
    assert verdict == Verdict.GRADIENT_SPIKE | Verdict.TAKEN
    assert not verdict.refuses
    assert math.exp(limit) == pytest.approx(math.exp(BOUND.sigmas * BOUND.norm_floor))
    assert advance(2.0, 1000.0, verdict, state, BOUND, limit).norms[-1] == limit


def test_a_loss_spike_with_a_usual_gradient_has_no_limit():
    state = after([(2.0, 1.0)] * 64, BOUND)
    assert examine(100.0, 1.0, state, BOUND) == (Verdict.LOSS_SPIKE | Verdict.TAKEN, INF)


@pytest.mark.parametrize("factor", [8.0, 100.0])
def test_a_factor_that_was_earned_widens_the_limit(factor):
    state = replace(after([(2.0, 1.0)] * 64, BOUND), factor=factor)
    assert said(2.0, 0.9 * factor, state, BOUND) is Verdict.FINE
    assert examine(2.0, 1e6, state, BOUND)[1] == pytest.approx(math.log(factor))


def test_a_loss_beyond_anything_plausible_is_given_no_more_than_the_usual_norm():
    state = after([(2.0, 1.0)] * 64, BOUND)
    assert examine(2.0 * IMPLAUSIBLE * 1.01, 50.0, state, BOUND)[1] == 0.0
    assert examine(2.0 * IMPLAUSIBLE * 0.99, 50.0, state, BOUND)[1] > 1.0


def test_the_highest_usual_loss_is_remembered_beyond_the_window_and_spikes_do_not_raise_it():
    state = after([(40.0, 1.0)] + [(39.0 - i, 1.0) for i in range(37)] + [(2.0, 1.0)] * 200 + [(1e5, 1.0)], BOUND)
    assert state.highest == 40.0


def test_level_changes_are_no_matter_of_strikes_where_spikes_are_bounded():
    state = after([(2.0, 1.0)] * 64 + [(900.0, 50.0)] * 30, BOUND)
    assert state.strikes == 0


def test_a_policy_that_ignores_spikes_refuses_what_is_not_finite_all_the_same():
    policy = Policy.only_nonfinite()
    state = after([(2.0, 1.0)] * 64, policy)
    assert examine(1e30, 1e30, state, policy) == (Verdict.FINE, INF)
    assert said(NAN, 1.0, state, policy) is Verdict.NOT_FINITE


@given(st.lists(st.tuples(finite_numbers, finite_numbers.map(abs)), max_size=60))
def test_no_finite_step_is_ever_refused_where_spikes_are_bounded(samples):
    state = SpikeState()
    for loss, norm in samples:
        verdict, limit = examine(loss, norm, state, BOUND)
        assert not verdict.refuses
        applied = min(compress_norm(norm), limit)
        state = advance(loss, norm, verdict, state, BOUND, limit)
        assert not state.norms or not math.isfinite(applied) or state.norms[-1] == applied


def test_a_loss_that_is_zero_by_design_or_has_a_sign_makes_no_later_one_a_fault():
    for first in ([7e-8, 3e-8, 9e-8], [0.002, -0.1, 0.001], [0.0, 0.0, 0.0]):
        state = SpikeState()
        for loss in first:
            state = advance(loss, 0.7, Verdict.FINE, state, Policy())
        assert examine(0.6, 0.9, state, Policy())[0] & Verdict.FAULT == 0
        assert examine(0.05, 0.9, state, Policy())[0] is Verdict.FINE
    state = SpikeState()
    for _ in range(3):
        state = advance(0.002, 0.7, Verdict.FINE, state, Policy())
    assert examine(0.6, 0.9, state, Policy())[0] & Verdict.FAULT
