"""What a way of taking a step adds to the work of the device, kernel by kernel: a matter of microseconds in a step of
hundreds of milliseconds, and so one that a clock over whole steps cannot tell from noise.
"""

from __future__ import annotations

import gc
import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.on_gpu.shapes import STATISTICS, Shape, Workload
from benchmarks.on_gpu.ways import BARE, BASE, GUARD, Way, Ways

WAYS = (BARE, BASE, GUARD, STATISTICS)
WARM_UP, STEPS = 4, 5
OPTIMIZER = "the optimizer's step"
KINDS = (("FusedOptimizer", OPTIMIZER), ("LpNorm", "norms"), ("BinaryOpScalar", "scaling"))
OTHERS = "small ones"

Durations = dict[str, list[float]]
"""Microseconds of every launch in ``STEPS`` steps, by kernel."""


@dataclass
class Added:
    """What was seen for one shape, in microseconds a step."""

    shape: str
    step: float
    """The device's work in a step of the loop without clip."""
    ways: dict[str, dict[str, float]] = field(default_factory=dict)
    """What each other way adds, by kind of kernel."""

    def total(self, name: str) -> float:
        """All that a way adds."""
        return sum(self.ways[name].values())

    def ratio(self, name: str, to: str) -> float:
        """The device's work in a step of one way, over that of another; the loop without clip adds nothing."""
        above, below = (self.step + (0.0 if way == BARE else self.total(way)) for way in (name, to))
        return above / below


def measure_added(shape: Shape) -> Added:
    """Every way in turn, under torch's profiler."""
    work = Workload(shape)
    with tempfile.TemporaryDirectory(prefix="added_") as directory, ExitStack() as open_ones:
        ways = Ways(work, Path(directory), open_ones)
        seen = {name: _watched(ways.build(name)) for name in WAYS}
    del work
    gc.collect()
    torch.cuda.empty_cache()
    bare = seen.pop(BARE)
    result = Added(shape.name, sum(map(sum, bare.values())) / STEPS)
    for name, durations in seen.items():
        result.ways[name] = beyond(durations, bare, STEPS)
    return result


def beyond(durations: Durations, bare: Durations, steps: int) -> dict[str, float]:
    """What one way does that the other does not, by kind of kernel, in microseconds a step.

    Kernels that both launch equally often are the model's, and the same; only the optimizer's may take longer. Of one
    that is launched more often, the shortest launches are those that were added.
    """
    found: dict[str, float] = {}
    for kernel, times in durations.items():
        before = bare.get(kernel, [])
        kind = next((kind for part, kind in KINDS if part in kernel), None)
        if kind == OPTIMIZER:
            more = sum(times) - sum(before)
        else:
            more = sum(sorted(times)[: max(len(times) - len(before), 0)])
        if kind is None:
            kind = kernel if re.fullmatch(r"\w+", kernel) and more / steps > 20 else OTHERS
        if more:
            found[kind] = found.get(kind, 0.0) + more / steps
    return found


def added_table(results: Sequence[Added]) -> str:
    """As lines of text."""
    lines = [f"{'':<48}{'us/step':>9}{'of clip':>10}{'of no clip':>12}   of which"]
    for result in results:
        lines.append(f"{f'{result.shape}: {BARE}':<48}{result.step:>9.0f}")
        for name, kinds in result.ways.items():
            parts = ", ".join(f"{kind} {more:.0f}" for kind, more in sorted(kinds.items(), key=lambda each: -each[1]))
            ratios = f"{result.ratio(name, BASE):>9.4f}x{result.ratio(name, BARE):>11.4f}x"
            lines.append(f"{f'{result.shape}: {name}':<48}{result.total(name):>+9.0f}{ratios}   {parts}")
    return "\n".join(lines)


def _watched(way: Way) -> Durations:
    for _ in range(WARM_UP):
        way.step()
    way.settle()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as watch:
        for _ in range(STEPS):
            way.step()
        way.settle()
        torch.cuda.synchronize()
    durations: Durations = {}
    for event in watch.events():
        if event.device_type == DeviceType.CUDA:
            durations.setdefault(event.name, []).append(event.device_time)
    return durations
