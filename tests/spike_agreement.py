"""Whether a spike test on a device says what the pure one says, step by step."""

import math

import pytest
import torch
from hypothesis import reject
from hypothesis import strategies as st

from make_signals import numbers
from stayfinite.core.spikes import (
    IMPLAUSIBLE,
    Verdict,
    advance,
    bound,
    compress_loss,
    compress_norm,
    examine,
    norm_bound,
)

runs = st.tuples(numbers, numbers, st.integers(1, 8))
sequences = st.lists(runs, min_size=1, max_size=10).map(
    lambda runs: [(loss, norm) for loss, norm, length in runs for _ in range(length)][:40]
)


def judged(device, loss, norm):
    loss, norm = torch.tensor(loss, dtype=torch.float64), torch.tensor(norm, dtype=torch.float64)
    return Verdict(int(device.judge(loss, norm).item()))


def on_a_bound(loss, norm, state, policy):
    """Whether the two sides may differ by the last bit of a logarithm."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        return False
    pairs = (
        (compress_loss(loss), bound(state.losses, policy.loss_floor, policy)),
        (compress_norm(norm), norm_bound(loss, state, policy)),
        (loss, IMPLAUSIBLE * state.highest),
    )
    return any(math.isfinite(limit) and abs(value - limit) <= 1e-9 * max(1.0, abs(limit)) for value, limit in pairs)


def agree_on(samples, policy, device, state):
    for loss, norm in samples:
        if on_a_bound(loss, norm, state, policy):
            reject()
        verdict, limit = examine(loss, norm, state, policy)
        assert judged(device, loss, norm) is verdict
        assert device.refused.item() == verdict.refuses
        if Verdict.GRADIENT_SPIKE in verdict and Verdict.TAKEN in verdict:
            assert device.judged[3].item() == pytest.approx(limit, rel=1e-9, abs=1e-9)
            bound = math.exp(limit)
            assert device.divisor.item() == pytest.approx(norm / bound, rel=1e-5) or norm > 1e37 * bound
        state = advance(loss, norm, verdict, state, policy, limit)
        assert device._course[0].item() == state.highest
    return state


def refuses_without_a_trace(device, bad, *, steps, spike):
    """After so many usual steps, as many bad ones change nothing of what is usual and what is a spike."""
    for _ in range(steps):
        judged(device, 2.0, 1.0)
    for _ in range(steps):
        assert judged(device, bad, 1.0) is Verdict.NOT_FINITE
        assert judged(device, 2.0, bad) is Verdict.NOT_FINITE
    assert judged(device, 2.0, 1.0) is Verdict.FINE
    assert judged(device, spike, 1.0) is Verdict.LOSS_SPIKE
