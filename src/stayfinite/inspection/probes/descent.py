"""Take a few real optimizer steps on one batch with fixed random numbers, then undo them."""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.step import Step
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import error_in_words
from stayfinite.state.rng import restore_rng

SKIPPED_MOST = 24  # steps that an fp16 scaler may skip while it searches its scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """The result of some steps on one batch."""

    losses: tuple[float, ...]
    """Before each step and after the last; ends at the first non-finite loss."""
    expected: float
    """Expected change of the loss in the first step: gradient times update."""
    moved: bool
    """Whether any weight changed."""
    error: str = ""
    """Why it could not be completed."""

    @property
    def drop(self) -> float:
        """First loss minus the lowest later one; negative if none is lower."""
        return self.losses[0] - min(self.losses[1:]) if len(self.losses) > 1 else 0.0

    def falls(self, noise: float = 0.0) -> bool:
        """Whether it falls by more than the noise and does not diverge afterwards."""
        if len(self.losses) < 2 or not all(map(math.isfinite, self.losses)):
            return False
        first, last = self.losses[0], self.losses[-1]
        least = max(noise, RESOLUTION * abs(first))
        return self.drop > least and last - first < max(abs(first), self.drop)

    @property
    def end(self) -> float:
        """The lowest of the last three losses, to tolerate jitter."""
        return min(self.losses[1:][-3:], default=self.losses[0])

    def is_restless(self, noise: float = 0.0) -> bool:
        """Whether it rises above the start, or falls first and then stagnates, as with too large steps."""
        first, middle = self.losses[0], self.losses[len(self.losses) // 2]
        least, clearly = (max(noise, share * abs(first)) for share in (RESOLUTION, CLEARLY))
        early, late = first - middle, middle - self.end
        stands = early > clearly >= late or (early > least and late <= STANDS * early)
        return max(self.losses) - first > least or stands

    def course(self) -> str:
        """`2.31 to 0.52 in 10 steps`."""
        steps = len(self.losses) - 1
        return f"{self.losses[0]:.4g} to {self.losses[-1]:.4g} in {steps} step{'s' if steps != 1 else ''}"


RESOLUTION = 1e-6  # relative resolution of an fp32 loss: smaller changes are rounding
CLEARLY = 1e-3  # a relative drop that is not chance
STANDS = 0.01  # a fall in the second half below this share of the first half is a stagnation

Rates = Callable[[int], float]  # step number -> multiplier of the planned learning rate


def descend(
    bench: Bench,
    steps: int,
    rates: Rates = lambda _step: 1.0,
    *,
    clip: float | None = None,
    step: Step | None = None,
) -> Descent:
    """Take some steps on one batch and undo them.

    ``rates`` multiplies the planned learning rate, ``clip`` limits the gradient norm, and ``step`` provides batch and
    random numbers; by default the bench's.
    """
    losses: list[float] = []
    step = step or bench.step
    expected, moved, error = 0.0, False, ""
    with bench.kept.undone(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        planned = [planned_rate(group) for group in bench.optimizer.param_groups]
        try:
            for number in _steps(bench, steps):
                losses[number:] = [_loss_and_gradients(bench, step, last=number == steps)]
                if number == steps or not math.isfinite(losses[-1]):
                    break
                for group, rate in zip(bench.optimizer.param_groups, planned, strict=True):
                    _set_rate(group, rate * rates(number))
                _take_step(bench, clip)
                if number == 0:
                    expected, moved = _first_order(bench)
        except Exception as problem:  # a model or optimizer can raise anything
            error = error_in_words(problem)
    return Descent(losses=tuple(losses), expected=expected, moved=moved, error=error)


def planned_rate(group: dict[str, Any]) -> float:
    """A group's learning rate; during warmup, its target."""
    return max(float(group.get("lr", 0.0)), float(group.get("initial_lr", 0.0)))


def warms_up(bench: Bench) -> bool:
    """Whether a schedule currently holds the rate below its target."""
    return any(float(group.get("lr", 0.0)) < planned_rate(group) for group in bench.optimizer.param_groups)


@contextmanager
def at_planned_rate(bench: Bench) -> Iterator[None]:
    """Set the optimizer to the rates that the schedule leads to."""
    kept = [group.get("lr") for group in bench.optimizer.param_groups]
    try:
        for group in bench.optimizer.param_groups:
            _set_rate(group, planned_rate(group))
        yield
    finally:
        for group, rate in zip(bench.optimizer.param_groups, kept, strict=True):
            group["lr"] = rate


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group.get("lr"), Tensor):
        group["lr"] = torch.full_like(group["lr"], rate)
    elif "lr" in group:
        group["lr"] = rate


def _steps(bench: Bench, steps: int) -> Iterator[int]:
    """0 to ``steps``, not counting steps that the scaler skips."""
    scaler, number, skipped = bench.working_scaler, 0, 0
    while number <= steps:
        scale = scaler.get_scale() if scaler is not None else 1.0
        yield number
        if scaler is not None and scaler.get_scale() < scale and skipped < SKIPPED_MOST:
            skipped += 1
        else:
            number += 1


def _loss_and_gradients(bench: Bench, step: Step, *, last: bool) -> float:
    restore_rng(dict(step.rng))
    bench.optimizer.zero_grad(set_to_none=True)
    for parameter in bench.model.parameters():
        parameter.grad = None
    with torch.enable_grad():
        loss = bench.run_forward(step.fresh_batch())
    value = float(loss.detach().float())
    if not last and math.isfinite(value):
        scaler = bench.working_scaler
        (loss if scaler is None else scaler.scale(loss)).backward()
    return value


def _take_step(bench: Bench, clip: float | None) -> None:
    scaler, optimizer = bench.working_scaler, bench.optimizer
    if scaler is not None:
        scaler.unscale_(optimizer)
    if clip is not None:
        nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip)
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()


def _first_order(bench: Bench) -> tuple[float, bool]:
    """Gradient times update, and whether there was an update."""
    total, moved = 0.0, False
    for group in bench.optimizer.param_groups:
        for parameter in group["params"]:
            before = bench.kept.copies.get(id(parameter))
            if parameter.grad is None or before is None:
                continue
            update = _real(parameter.detach()) - _real(before.to(parameter.device))
            moved = moved or bool((update != 0).any())
            gradient = parameter.grad.detach()
            total += float((_real(gradient.to_dense() if gradient.is_sparse else gradient) * update).sum())
    return total, moved


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.float()


def affordable(seconds_a_step: float, wanted: int, budget: float) -> int:
    """How many of the wanted steps fit into the time budget; at least three."""
    return min(wanted, max(3, int(budget / max(seconds_a_step, 1e-6))))
