import math
from random import Random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from make_signals import INF, NAN, finite_numbers, numbers, small_policies
from stayfinite.core.policy import Policy
from stayfinite.core.spikes import (
    SpikeState,
    Verdict,
    advance,
    compress_loss,
    compress_norm,
    examine,
    limits,
    limits_of_return,
)

POLICY = Policy()


def after(samples, policy=POLICY, state=None):
    state = state or SpikeState()
    for loss, norm in samples:
        state = advance(loss, norm, examine(loss, norm, state, policy), state, policy)
    return state


def normal_noise(steps, sigma):
    """The quantiles of a normal distribution in a random order: a sample whose spread is exactly known."""
    values = [NormalDist(0, sigma).inv_cdf((i + 0.5) / steps) for i in range(steps)]
    return Random(0).sample(values, steps)


@pytest.mark.parametrize(("sigmas", "verdict"), [(5.8, Verdict.FINE), (6.2, Verdict.LOSS_SPIKE)])
def test_a_loss_six_sigma_above_128_quiet_steps_is_refused(sigmas, verdict):
    state = after((math.sinh(2 + noise), 1.0) for noise in normal_noise(128, 0.1))
    assert examine(math.sinh(2 + sigmas * 0.1), 1.0, state, POLICY) is verdict


@pytest.mark.parametrize(("sigmas", "verdict"), [(5.8, Verdict.FINE), (6.2, Verdict.GRADIENT_SPIKE)])
def test_a_gradient_norm_six_sigma_above_128_quiet_steps_is_refused(sigmas, verdict):
    state = after((2.0, math.exp(noise)) for noise in normal_noise(128, 0.4))
    assert examine(2.0, math.exp(sigmas * 0.4), state, POLICY) is verdict


def test_a_step_may_spike_in_loss_and_gradient_at_once():
    state = after([(2.0, 1.0)] * 20)
    assert examine(100.0, 100.0, state, POLICY) == Verdict.LOSS_SPIKE | Verdict.GRADIENT_SPIKE


def test_a_fiftyfold_loss_is_refused_already_at_step_6():
    state = after((2.0 + noise, 1.0) for noise in (0.3, -0.2, 0.1, -0.4, 0.2))
    assert examine(100.0, 1.0, state, POLICY) is Verdict.LOSS_SPIKE


def test_the_bound_is_wider_during_the_warmup():
    few, many = after([(2.0, 1.0)] * (POLICY.warmup - 1)), after([(2.0, 1.0)] * POLICY.warmup)
    assert examine(4.0, 1.0, few, POLICY) is Verdict.FINE
    assert examine(4.0, 1.0, many, POLICY) is Verdict.LOSS_SPIKE


@pytest.mark.parametrize("samples", [[], [(2.0, 1.0)]])
def test_nothing_finite_is_a_spike_without_two_samples_to_compare_with(samples):
    assert examine(1e30, 1e30, after(samples), POLICY) is Verdict.FINE


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_is_refused_from_the_first_step_on(bad):
    assert examine(bad, 1.0, SpikeState(), POLICY) is Verdict.NOT_FINITE
    assert examine(1.0, bad, SpikeState(), POLICY) is Verdict.NOT_FINITE


def test_a_loss_far_below_the_usual_is_no_spike():
    state = after([(2.0, 1.0)] * 50)
    assert examine(-1e6, 1e-6, state, POLICY) is Verdict.FINE


def test_infinite_sigmas_switch_the_spike_test_off_and_nothing_else():
    policy = Policy(sigmas=INF)
    state = after([(2.0, 1.0)] * 50, policy)
    assert examine(1e30, 1e30, state, policy) is Verdict.FINE
    assert examine(NAN, 1.0, state, policy) is Verdict.NOT_FINITE


def test_a_height_that_was_accepted_lately_is_accepted_again_and_a_little_more_too():
    noise = normal_noise(128, 0.01)
    state = after((2.0 + (4.0 if i < 15 and i % 4 == 2 else 0) + noise[i], 1.0) for i in range(64))
    assert examine(6.0, 1.0, state, POLICY) is Verdict.FINE
    assert examine(6.15, 1.0, state, POLICY) is Verdict.FINE
    assert examine(9.0, 1.0, state, POLICY) is Verdict.LOSS_SPIKE


def test_a_gradient_norm_of_zero_is_no_spike_and_enters_no_window():
    state = after([(2.0, 1.0)] * 5 + [(2.0, 0.0)] * 3)
    assert (len(state.losses), state.norms) == (8, (0.0,) * 5)


def test_a_full_window_forgets_its_oldest_sample():
    state = after([(float(i), 1.0) for i in (1, 2, 3, 4, 5)], Policy(window=4, warmup=2))
    assert state.losses == tuple(map(compress_loss, (2.0, 3.0, 4.0, 5.0)))


def test_a_level_that_stays_is_accepted_after_the_allowed_strikes_and_starts_a_new_window():
    state = after([(2.0, 1.0)] * 128)
    for _ in range(POLICY.level_change_after):
        verdict = examine(8.0, 1.0, state, POLICY)
        assert verdict is Verdict.LOSS_SPIKE
        state = advance(8.0, 1.0, verdict, state, POLICY)
    verdict = examine(8.0, 1.0, state, POLICY)
    assert verdict == Verdict.LOSS_SPIKE | Verdict.NEW_LEVEL
    assert not verdict.refuses
    assert advance(8.0, 1.0, verdict, state, POLICY) == SpikeState((compress_loss(8.0),), (0.0,), strikes=0, quiet=1)


def test_strikes_are_forgiven_after_a_whole_window_without_one():
    policy = Policy(window=16)
    struck = after([(2.0, 1.0)] * 16 + [(100.0, 1.0)] * 3, policy)
    assert struck.strikes == 3
    assert after([(2.0, 1.0)] * 15, policy, struck).strikes == 3
    assert after([(2.0, 1.0)] * 16, policy, struck).strikes == 0


def test_steps_that_are_not_finite_say_nothing_about_the_level():
    state = after([(2.0, 1.0)] * 20)
    assert after([(NAN, 1.0), (1.0, INF), (-INF, NAN)] * 10, state=state) == state


@pytest.mark.parametrize("bits", range(16))
def test_a_verdict_with_the_bit_for_not_finite_always_refuses(bits):
    verdict = Verdict(bits)
    assert verdict.refuses == bool(bits & 1 or (bits and not bits & 8))


@given(small_policies, st.lists(st.tuples(numbers, numbers), max_size=50))
def test_windows_hold_only_finite_values_and_refused_samples_leave_them_as_they_were(policy, samples):
    state = SpikeState()
    for loss, norm in samples:
        verdict = examine(loss, norm, state, policy)
        new = advance(loss, norm, verdict, state, policy)
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
        verdicts.append(examine(loss, norm, state, policy))
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
