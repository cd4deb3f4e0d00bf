"""The spike test's own kernel in Triton's interpreter; on a GPU: test_spike_kernel_on_cuda.py."""

import math
import sys

import pytest
import torch
from hypothesis import given, settings

from make_signals import INF, NAN, small_policies
from quick_ones import quick_ones
from spike_agreement import agree_on, judged, refuses_without_a_trace, sequences
from stayfinite.core.policy import Policy
from stayfinite.core.spikes import SpikeState, Verdict
from stayfinite.measure.spikes import WIDEST, DeviceSpikes

pytest.importorskip("triton", reason="the kernel needs Triton")
if torch.cuda.is_available():
    pytest.skip("here the kernel is compiled; see test_spike_kernel_on_cuda.py", allow_module_level=True)

# The interpreter computes with numpy, which remarks on infinity minus infinity; the kernel passes over it.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CPU = torch.device("cpu")


def by_kernel(policy, state=None):
    return DeviceSpikes(policy, CPU, state, by_kernel=True)


@pytest.mark.parametrize("examples", quick_ones([4, 40], 4))
def test_the_kernel_and_the_pure_test_give_the_same_verdicts(examples):
    @settings(max_examples=examples)
    @given(small_policies, sequences)
    def agree(policy, samples):
        device = by_kernel(policy)
        agree_on(samples, policy, device, SpikeState())
        assert device._by_kernel

    agree()


@pytest.mark.parametrize("examples", quick_ones([2, 20], 2))
def test_a_kernel_loaded_in_mid_sequence_goes_on_as_the_pure_test_does(examples):
    @settings(max_examples=examples)
    @given(small_policies, sequences, sequences)
    def agree(policy, before, after):
        state = agree_on(before, policy, by_kernel(policy), SpikeState())
        agree_on(after, policy, by_kernel(policy, state), state)

    agree()


def test_spikes_that_keep_coming_are_a_new_level_and_the_old_one_is_forgotten():
    policy = Policy.refuse_spikes(window=6, warmup=2, level_change_after=3, sigmas=3)
    samples = [(2 + 0.1 * math.sin(i), 1.0) for i in range(15)] + [(900.0 + i, 1.0) for i in range(12)] + [(2.0, 1.0)]
    state = agree_on(samples, policy, by_kernel(policy), SpikeState())
    assert state.strikes == 0
    assert state.losses[-1] < 2 < 7 < state.losses[0]


@pytest.mark.slow
def test_a_window_that_has_gone_round_many_times_is_still_the_same():
    policy = Policy.refuse_spikes(window=8, warmup=2, sigmas=3)
    samples = [(2 + math.sin(i), math.exp(math.cos(3 * i))) for i in range(60)] + [(50.0, 1.0), (2.0, 500.0)]
    assert agree_on(samples, policy, by_kernel(policy), SpikeState()).strikes == 2


@pytest.mark.parametrize("bad", quick_ones([NAN, INF, -INF], NAN))
def test_what_is_not_finite_is_refused_and_leaves_no_trace(bad):
    refuses_without_a_trace(by_kernel(Policy.refuse_spikes()), bad, steps=10, spike=9000.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_loss_of_any_precision_is_judged(dtype):
    device = by_kernel(Policy.refuse_spikes())
    for _ in range(5):
        device.judge(torch.tensor(2.0, dtype=dtype), torch.tensor(1.0))
    assert device.judge(torch.tensor(9000.0, dtype=dtype), torch.tensor(1.0)).item() == Verdict.LOSS_SPIKE


@pytest.mark.parametrize("loss", [0.0, 1e-300, -1e-12, 3e-5, -0.7, 12.0, 1e9, -1e30, 1e149, 1e151, 1.7e308])
def test_losses_of_every_size_enter_the_window_as_the_pure_test_has_them(loss):
    device = by_kernel(Policy.refuse_spikes())
    judged(device, loss, 1.0)
    assert device._window[0, 0].item() == pytest.approx(math.asinh(loss), rel=1e-14)


def test_a_kernel_that_cannot_be_built_is_left_alone_and_torch_goes_on_from_the_same_state(monkeypatch):
    device = by_kernel(Policy.refuse_spikes(), SpikeState(losses=(1.0, 1.1, 0.9) * 10, norms=(0.0, 0.1) * 12))
    monkeypatch.setitem(sys.modules, "stayfinite.measure.spike_kernel", None)
    assert judged(device, 1.2, 1.0) is Verdict.FINE
    assert judged(device, 900.0, 1.0) is Verdict.LOSS_SPIKE
    assert not device._by_kernel


def test_a_kernel_that_has_worked_and_fails_later_is_an_error(monkeypatch):
    device = by_kernel(Policy.refuse_spikes())
    judged(device, 1.0, 1.0)
    monkeypatch.setitem(sys.modules, "stayfinite.measure.spike_kernel", None)
    with pytest.raises(ImportError):
        judged(device, 1.0, 1.0)


def test_a_window_that_is_too_long_for_the_kernel_is_torchs():
    assert not by_kernel(Policy.refuse_spikes(window=WIDEST + 1))._by_kernel
