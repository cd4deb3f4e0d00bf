"""Letting the ways take turns, and what comes out."""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from benchmarks.on_gpu.shapes import Shape, Workload
from benchmarks.on_gpu.ways import AGAIN, BARE, BASE, GUARD, SLOW, Way, Ways

WARM_UP, SLOW_STEPS, LEAST_REPEATS = 5, 2, 3
BASES = (BASE, AGAIN, BARE, GUARD)
"""What others are compared with."""


@dataclass
class Result:
    """What was measured for one shape."""

    shape: str
    description: str
    parameters: int
    tensors: int
    turn: int
    at_a_time: int
    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    """Time per step, one a repeat."""
    failures: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    """What the guards said: anything at all means that they did more, or less, than a healthy step."""

    def ratios(self, name: str, to: str) -> list[float]:
        """A way's time over another's, repeat by repeat."""
        own, base = self.milliseconds.get(name, []), self.milliseconds.get(to, [])
        return [a / b for a, b in zip(own, base, strict=False)]

    def median(self, name: str, to: str) -> float | None:
        """The median of these ratios; None where one of both is missing."""
        ratios = self.ratios(name, to)
        return statistics.median(ratios) if ratios else None


def measure(shape: Shape, names: Sequence[str], seconds: float, *, small: bool = False) -> Result:
    """Build the model and the ways, and let them take turns until the time is spent."""
    with tempfile.TemporaryDirectory(prefix="gpu_") as directory, ExitStack() as open_ones:
        result = _measure(shape, names, seconds, Path(directory), open_ones, small=small)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return result


def _measure(
    shape: Shape, names: Sequence[str], seconds: float, directory: Path, open_ones: ExitStack, *, small: bool
) -> Result:
    work = Workload(shape, small=small)
    result = Result(
        shape=shape.name,
        description=str(shape),
        parameters=sum(p.numel() for p in work.parameters),
        tensors=len(work.parameters),
        turn=shape.turn,
        at_a_time=shape.at_a_time or shape.turn,
    )
    ways = Ways(work, directory, open_ones)
    ready: dict[str, Way] = {}

    def prepare(name: str) -> None:
        way = ways.build(name)
        _timed(work, way, SLOW_STEPS if name in SLOW else WARM_UP)
        ready[name] = way

    for name in names:
        _attempt(result, name, partial(prepare, name))
    _say(f"{shape.name}: {len(ready)} ways are warm, {len(result.failures)} failed")
    promised = {name for name, *_ in shape.promises}
    closely = {name: way for name, way in ready.items() if promised and name in {*promised, *BASES}}
    repeat = _repeats(result, work, ready, seconds / 2 if closely else seconds)
    if closely:
        _repeats(result, work, closely, seconds / 2, first=repeat)
    result.remarks = list(ways.remarks.lines)
    return result


def _repeats(result: Result, work: Workload, ready: dict[str, Way], seconds: float, first: int = 0) -> int:
    """Let them take turns for so long; says how many repeats there were, with those before."""
    begun, repeat = time.perf_counter(), first
    while repeat < first + LEAST_REPEATS or time.perf_counter() - begun < seconds:
        _repeat(result, work, ready, repeat)
        repeat += 1
    return repeat


def _repeat(result: Result, work: Workload, ready: dict[str, Way], repeat: int) -> None:
    spent: dict[str, float] = {}
    turn = result.turn
    names = [name for name in ready if name not in SLOW or repeat == 0]

    def timed(name: str, steps: int, of: int) -> None:
        spent[name] = spent.get(name, 0.0) + 1000 * _timed(work, ready[name], steps) / of

    for part in range(turn // result.at_a_time):
        for place in range(len(names)):
            name = names[(place + repeat + part) % len(names)]
            slow = name in SLOW
            steps, of = (SLOW_STEPS, SLOW_STEPS) if slow else (result.at_a_time, turn)
            if name not in result.failures and not (slow and part):
                _attempt(result, name, partial(timed, name, steps, of))
    for name, milliseconds in spent.items():
        if name in result.failures:
            continue
        way = ready[name]
        if way.spread_over and GUARD in spent:
            milliseconds = spent[GUARD] + (milliseconds - spent[GUARD]) * turn / way.spread_over
        result.milliseconds.setdefault(name, []).append(milliseconds)
    if BASE in spent:
        shown = ", ".join(f"{name} {spent[name] / spent[BASE]:.3f}" for name in names if name in spent)
        _say(f"{result.shape}: repeat {repeat + 1}: {spent[BASE]:.1f} ms; {shown}")


def _timed(work: Workload, way: Way, steps: int) -> float:
    """Seconds that so many steps take, until nothing of them is left to do on the device or the host."""
    with way.around():
        work.synchronize()
        begun = time.perf_counter()
        way.begin()
        for _ in range(steps):
            way.step()
        way.settle()
        work.synchronize()
        return time.perf_counter() - begun


def _attempt(result: Result, name: str, work: Callable[[], None]) -> None:
    """Do it; a failure is a line in the table and not the end."""
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work()
    except Exception as error:
        result.failures[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
        _say(
            f"{result.shape}: {name} FAILED after {time.perf_counter() - begun:.0f} s: {type(error).__name__}: {error}"
        )


def table(result: Result) -> str:
    """The measured times as lines of text."""
    lines = [f"{'':<38}{'ms/step':>9}{'':>6}of the loop with clip{'':>5}of the loop without"]
    for name, times in result.milliseconds.items():
        with_clip, without = (_spread(result.ratios(name, to)) for to in (BASE, BARE))
        lines.append(f"{name:<38}{statistics.median(times):>9.2f}{'':>3}{with_clip:<26}{without}")
    lines += [f"{name:<38}   failed: {why}" for name, why in result.failures.items()]
    return "\n".join(lines)


def verdicts(result: Result, shape: Shape) -> list[str]:
    """What was promised against what was measured."""
    lines = []
    for name, to, most in shape.promises:
        ratio = result.median(name, to)
        words = f"{result.shape}: {name}, promised at most {most:.2f}x of the loop with '{to}'"
        if ratio is None:
            lines.append(f"----  {words}: not measured")
        else:
            # To the two digits of the promise.
            kept = round(ratio, 2) <= most
            lines.append(f"{'PASS ' if kept else 'SHORT'} {words}: {ratio:.4f}x")
    if result.remarks:
        lines.append(f"?     the guards spoke {len(result.remarks)} times: {result.remarks[0]}")
    return lines


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    if len(ratios) == 1:
        return f"{ratios[0]:.3f}x"
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{statistics.median(ratios):.3f}x [{low:.3f}, {high:.3f}]"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
