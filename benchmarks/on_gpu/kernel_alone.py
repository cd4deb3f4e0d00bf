"""The kernel by itself: how fast it reads, and what a call costs the host."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from stayfinite.measure.one_pass import OnePass, Tuning

PROMISE = 0.85
"""Of the bandwidth of a device-to-device copy, reading and writing counted."""
BYTES = 3 << 30
TUNINGS = (
    Tuning(),
    Tuning(chunk=65_536),
    Tuning(chunk=16_384),
    Tuning(block=4096, unroll=2),
    Tuning(block=4096, unroll=4, chunk=65_536),
    Tuning(block=1024, unroll=4, warps=4),
    Tuning(block=1024, unroll=8, warps=4),
    Tuning(block=2048, unroll=2),
    Tuning(block=2048, unroll=8, chunk=65_536),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was timed."""

    what: str
    milliseconds: float
    spread: float
    """Between the quartiles."""
    gigabytes: float
    """Moved, reading and writing counted."""

    @property
    def rate(self) -> float:
        """GB/s."""
        return self.gigabytes / self.milliseconds * 1000


@dataclass(frozen=True, slots=True)
class Alone:
    """What was measured."""

    lines: list[Line]
    host: dict[str, float]
    """Microseconds of the host for a call."""
    failures: list[str]

    def rate(self, what: str) -> float | None:
        """GB/s of a line."""
        return next((line.rate for line in self.lines if line.what == what), None)


def tensors_like_llama(dtype: torch.dtype, total: int, device: torch.device) -> list[Tensor]:
    """Gradients as those of a LLaMA of 1.2 billion, as many as fit into so many bytes."""
    layer = [(2048, 2048), (512, 2048), (512, 2048), (2048, 2048), *[(8192, 2048)] * 3, (2048,), (2048,)]
    made: list[Tensor] = []
    spent = 0
    while spent < total:
        for shape in layer:
            made.append(torch.randn(shape, device=device, dtype=dtype))
            spent += made[-1].nbytes
    return made


class Stopwatch:
    """Times work on the device, line by line; what fails is a line as well."""

    def __init__(self, rounds: int) -> None:
        self.lines: list[Line] = []
        self.failures: list[str] = []
        self._rounds = rounds

    def __call__(self, what: str, gigabytes: float, work: Callable[[], object]) -> None:
        """Time it."""
        try:
            low, middle, high = statistics.quantiles(_timed(work, self._rounds), n=4)
        except Exception as error:
            self.failures.append(f"{what}: {type(error).__name__}: {str(error)[:300]}")
        else:
            self.lines.append(Line(what, middle, high - low, gigabytes))


def measure_kernel(device: torch.device, *, tune: bool, quick: bool) -> Alone:
    """Everything, on a CUDA device."""
    stopwatch = Stopwatch(10 if quick else 30)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        _measure_copy(stopwatch, dtype, device)
        _measure_reading(stopwatch, dtype, device, TUNINGS if tune else TUNINGS[:1])
        torch.cuda.empty_cache()
    return Alone(stopwatch.lines, _host_cost(device), stopwatch.failures)


def _measure_copy(stopwatch: Stopwatch, dtype: torch.dtype, device: torch.device) -> None:
    whole = torch.empty(BYTES // dtype.itemsize, dtype=dtype, device=device).normal_()
    twin = torch.empty_like(whole)
    stopwatch(f"{_short(dtype)}: device-to-device copy", 2 * BYTES / 1e9, lambda: twin.copy_(whole))


def _measure_reading(stopwatch: Stopwatch, dtype: torch.dtype, device: torch.device, tunings: Sequence[Tuning]) -> None:
    name, gradients = _short(dtype), tensors_like_llama(dtype, BYTES, device)
    size = sum(grad.nbytes for grad in gradients) / 1e9
    for tuning in tunings:
        label = f" {tuning.chunk}/{tuning.block}x{tuning.unroll}/{tuning.warps}" if len(tunings) > 1 else ""
        stopwatch(f"{name}: one pass{label}", size, partial(OnePass(device, tuning).read, gradients))

    stopwatch(f"{name}: torch._foreach_norm", size, lambda: torch._foreach_norm(gradients))
    stopwatch(f"{name}: _foreach_mul_ (the clip)", 2 * size, lambda: torch._foreach_mul_(gradients, 1.0))
    parameters = _with_gradients(gradients)
    stopwatch(f"{name}: clip_grad_norm_", 3 * size, lambda: nn.utils.clip_grad_norm_(parameters, 1e9))


def _with_gradients(gradients: Sequence[Tensor]) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.empty_like(grad)) for grad in gradients]
    for parameter, grad in zip(parameters, gradients, strict=True):
        parameter.grad = grad
    return parameters


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _timed(work: Callable[[], object], rounds: int) -> list[float]:
    """Milliseconds of the device for a call, by events; other data than the last call's is in the cache by then."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The host runs ahead while the device is kept busy, so that only the device is timed.
        torch.cuda._sleep(4_000_000)
        begun.record()
        work()
        ended.record()
        torch.cuda.synchronize()
        times.append(float(begun.elapsed_time(ended)))
    return times


def _host_cost(device: torch.device) -> dict[str, float]:
    found: dict[str, float] = {}
    for count in (190, 500, 10_000):
        tensors = [torch.ones(64, device=device) for _ in range(count)]
        sides = itertools.cycle([tensors, [tensor.clone() for tensor in tensors]])
        reader, mover, parameters = OnePass(device), OnePass(device), _with_gradients(tensors)
        works: dict[str, Callable[[], object]] = {
            "one pass, gradients where they were": partial(reader.read, tensors),
            "one pass, gradients elsewhere each time": partial(_read_next, mover, sides),
            "_foreach_norm, stack, norm": partial(_norm_by_torch, tensors),
            "clip_grad_norm_": partial(nn.utils.clip_grad_norm_, parameters, 1e9),
        }
        for what, work in works.items():
            found[f"{count} tensors: {what}"] = _host_microseconds(work, 20 if count > 1000 else 100)
    return found


def _read_next(reader: OnePass, sides: Iterator[list[Tensor]]) -> None:
    reader.read(next(sides))


def _norm_by_torch(tensors: list[Tensor]) -> object:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))


def _host_microseconds(work: Callable[[], object], rounds: int) -> float:
    for _ in range(5):
        work()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        times.append(1e6 * (time.perf_counter() - begun))
    torch.cuda.synchronize()
    return statistics.median(times)


def kernel_table(alone: Alone) -> str:
    """The measured numbers as lines of text."""
    lines = [f"{'':<44}{'ms':>9}{'+-':>8}{'GB/s':>9}   of the copy"]
    copy = 1.0
    for each in alone.lines:
        copy = each.rate if "copy" in each.what else copy
        lines.append(
            f"{each.what:<44}{each.milliseconds:>9.3f}{each.spread:>8.3f}{each.rate:>9.0f}   {each.rate / copy:.2f}"
        )
    lines += [f"failed: {why}" for why in alone.failures]
    lines += ["", f"{'host time for a call':<58}{'microseconds':>14}"]
    lines += [f"{what:<58}{cost:>14.0f}" for what, cost in alone.host.items()]
    return "\n".join(lines)


def kernel_verdicts(alone: Alone) -> list[str]:
    """What was promised against what was measured."""
    found: list[str] = []
    for name in ("float32", "bfloat16", "float16"):
        copy = alone.rate(f"{name}: device-to-device copy")
        reads = [
            line.rate for line in alone.lines if line.what.startswith(f"{name}: one pass") and "exp" not in line.what
        ]
        if copy is None or not reads:
            found.append(f"----  kernel, {name}: not measured")
            continue
        # The first is the division that the guard uses.
        share = reads[0] / copy
        words = f"kernel, {name}: {reads[0]:.0f} GB/s, {share:.2f} of the copy's {copy:.0f}, promised {PROMISE:.2f}"
        best = f"; with another division of its work {max(reads) / copy:.2f}" if len(reads) > 1 else ""
        found.append(f"{'PASS ' if share >= PROMISE else 'SHORT'} {words}{best}")
    return found
