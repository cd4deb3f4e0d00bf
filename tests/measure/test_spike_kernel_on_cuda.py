"""The spike test's own kernel against the graph of torch's, on a CUDA device.

Where pytest is missing:  PYTHONPATH=src:tests python3 tests/measure/test_spike_kernel_on_cuda.py
"""

import math
import random
from collections.abc import Iterator
from unittest import mock

import torch
from torch import Tensor

from on_a_gpu import MARKS, each, no_host_wait, run_all
from stayfinite.core.policy import Policy
from stayfinite.core.spikes import SpikeState, Verdict
from stayfinite.measure.spikes import DeviceSpikes

pytestmark = MARKS

CUDA = torch.device("cuda", 0)


def training(seed: int, steps: int) -> Iterator[tuple[float, float]]:
    """Losses and norms with spikes, NaN, norms of 0 and new levels in them."""
    source, level = random.Random(seed), 2.0
    for _ in range(steps):
        if source.random() < 0.01:
            level *= source.choice([0.1, 40.0])
        loss, norm = level * math.exp(0.1 * source.gauss(0, 1)), math.exp(source.gauss(0, 0.5))
        kind = source.random()
        loss = source.choice([math.nan, math.inf, -math.inf, -3.0, 0.0]) if kind < 0.04 else loss
        norm = source.choice([math.nan, math.inf, 0.0]) if 0.04 < kind < 0.08 else norm
        yield (loss * 1e4 if kind > 0.97 else loss), (norm * 1e4 if 0.94 < kind < 0.97 else norm)


def on_device(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, device=CUDA)


@each("window", [4, 100, 128, 1024])
@each("seed", [0, 1, 2])
def test_the_kernel_and_torch_give_the_same_verdicts(window: int, seed: int) -> None:
    policy = Policy.refuse_spikes(window=window, warmup=2, level_change_after=3)
    own, torchs = DeviceSpikes(policy, CUDA, by_kernel=True), DeviceSpikes(policy, CUDA)
    met: set[Verdict] = set()
    for step, (loss, norm) in enumerate(training(seed, 600)):
        one, other = (device.judge(on_device(loss), on_device(norm)).item() for device in (own, torchs))
        assert one == other, (step, loss, norm)
        verdict = Verdict(int(one))
        assert own.refused.item() == torchs.refused.item() == verdict.refuses
        met.add(verdict)
    assert own._by_kernel
    assert {Verdict.FINE, Verdict.NOT_FINITE, Verdict.LOSS_SPIKE, Verdict.GRADIENT_SPIKE} <= met


@each("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_loss_of_any_precision_is_judged_without_a_wait(dtype: torch.dtype) -> None:
    device = DeviceSpikes(Policy.refuse_spikes(), CUDA, by_kernel=True)
    usual, high, norm = (torch.tensor(value, dtype=dtype, device=CUDA) for value in (2.0, 90.0, 1.0))
    device.judge(usual, norm.float())
    with no_host_wait():
        for _ in range(20):
            device.judge(usual, norm.float())
        device.judge(high, norm.float())
    assert device.verdict.item() == Verdict.LOSS_SPIKE


def test_a_graph_judges_what_is_in_its_memory_at_each_replay() -> None:
    policy = Policy.refuse_spikes(window=32, warmup=4)
    inside, outside = (DeviceSpikes(policy, CUDA, by_kernel=True) for _ in range(2))
    loss, norm = on_device(2.0), on_device(1.0)
    inside.judge(loss, norm)
    inside.load(SpikeState())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside.judge(loss, norm)
    for one, other in training(5, 200):
        loss.fill_(one)
        norm.fill_(other)
        graph.replay()
        assert inside.verdict.item() == outside.judge(loss, norm).item()


def test_where_the_kernel_cannot_be_built_torch_judges_and_goes_on_from_the_same_state() -> None:
    state = SpikeState(losses=(1.0, 1.1, 0.9) * 10, norms=(0.0, 0.1) * 12)
    device = DeviceSpikes(Policy.refuse_spikes(), CUDA, state, by_kernel=True)
    with mock.patch("stayfinite.measure.spike_kernel.judge_step", None):
        assert device.judge(on_device(1.2), on_device(1.0)).item() == Verdict.FINE
        assert device.judge(on_device(900.0), on_device(1.0)).item() == Verdict.LOSS_SPIKE
    assert not device._by_kernel


if __name__ == "__main__":
    run_all(globals())
