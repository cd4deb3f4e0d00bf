import math

import pytest
import torch
from hypothesis import given, settings

from make_signals import INF, NAN, small_policies
from spike_agreement import agree_on, judged, refuses_without_a_trace, sequences
from stayfinite.core.policy import Policy
from stayfinite.core.spikes import SpikeState, Verdict
from stayfinite.measure.spikes import DeviceSpikes

CPU = torch.device("cpu")


@settings(max_examples=50)
@given(small_policies, sequences)
def test_the_device_and_the_pure_test_give_the_same_verdicts(policy, samples):
    agree_on(samples, policy, DeviceSpikes(policy, CPU), SpikeState())


@settings(max_examples=50)
@given(small_policies, sequences, sequences)
def test_a_device_loaded_in_mid_sequence_goes_on_as_the_pure_test_does(policy, before, after):
    state = agree_on(before, policy, DeviceSpikes(policy, CPU), SpikeState())
    agree_on(after, policy, DeviceSpikes(policy, CPU, state), state)


@pytest.mark.slow
@settings(max_examples=50)
@given(small_policies, sequences, sequences)
def test_loading_forgets_what_the_device_remembered(policy, before, after):
    device = DeviceSpikes(policy, CPU)
    for loss, norm in before:
        judged(device, loss, norm)
    device.load(SpikeState())
    agree_on(after, policy, device, SpikeState())


def test_a_window_that_has_gone_round_many_times_is_still_the_same():
    policy = Policy.refuse_spikes(window=8, warmup=2, sigmas=3)
    samples = [(2 + math.sin(i), math.exp(math.cos(3 * i))) for i in range(100)] + [(50.0, 1.0), (2.0, 500.0)]
    state = agree_on(samples, policy, DeviceSpikes(policy, CPU), SpikeState())
    assert state.strikes == 2


def test_a_state_from_a_wider_window_is_cut_to_the_last_samples():
    wide = SpikeState(losses=(9.0,) * 6 + (1.0,) * 4, norms=(0.0,) * 5)
    device = DeviceSpikes(Policy.refuse_spikes(window=4, warmup=2), CPU, wide)
    assert judged(device, math.sinh(8.0), 1.0) is Verdict.LOSS_SPIKE


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_is_refused_and_leaves_no_trace_on_the_device(bad):
    refuses_without_a_trace(DeviceSpikes(Policy.refuse_spikes(), CPU), bad, steps=20, spike=90.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_loss_of_any_precision_is_judged(dtype):
    device = DeviceSpikes(Policy.refuse_spikes(), CPU)
    for _ in range(20):
        device.judge(torch.tensor(2.0, dtype=dtype), torch.tensor(1.0))
    assert device.judge(torch.tensor(90.0, dtype=dtype), torch.tensor(1.0)).item() == Verdict.LOSS_SPIKE
