"""Per-module findings over all batches and measuring points: magnitudes, errors per format, formats that break."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from torch import nn

from stayfinite.errors import UsageError
from stayfinite.precision.candidates import HEADROOM
from stayfinite.precision.emulating import RECIPES
from stayfinite.precision.formats import FP16
from stayfinite.precision.local_errors import LocalError, local_error
from stayfinite.precision.measuring import FullStep
from stayfinite.precision.plan import Row
from stayfinite.precision.speed import Work, work_of
from stayfinite.precision.units import multiplies

LARGEST_SCALE = 2.0**24
COARSER = 20.0
"""fp8 error over bf16 error explained by 3 fraction bits instead of 7: 16, plus some margin."""


class ModulesSeen:
    """Accumulates over batches and measuring points.

    Arguments:
        allowed: the formats to consider.
        most: relative error of a module's output or gradients above which the format breaks it.
    """

    def __init__(self, allowed: tuple[str, ...], most: float) -> None:
        self._allowed, self._most = allowed, most
        self._largest: dict[str, dict[str, float]] = {}
        self.errors: dict[str, dict[str, LocalError]] = {}
        self.works: dict[str, Work] = {}
        self.modules: dict[str, nn.Module] = {}
        self.breaks: dict[str, dict[str, str]] = {}
        """Formats that break a module, with the reason."""
        self.scale = LARGEST_SCALE
        """Largest power of two that keeps all gradients of products well within fp16's range."""

    def take_in(self, found: FullStep) -> None:
        """Add the fp32 step of one batch.

        Raises:
            UsageError: the loss is not finite or a value is NaN. An infinity may be a mask.
        """
        if not math.isfinite(found.loss):
            raise _not_finite(f"the loss is {found.loss}")
        for name, seen in found.seen.items():
            self.modules[name] = seen.module
            mine = self._largest.setdefault(name, {})
            for what, value in seen.largest.items():
                if math.isnan(largest := float(value)):
                    raise _not_finite(f"{what} of {name or 'the model'} is NaN")
                mine[what] = max(mine.get(what, 0.0), largest)
            self.works[name] = work_of(name, seen.module, seen.rows, seen.moved)

    def try_formats(self, first: FullStep) -> None:
        """Measure each module alone in each format."""
        self.scale = min(self.scale, self._loss_scale())
        wanted = [kind for kind in RECIPES if kind != "fp32" and kind.partition("-")[0] in self._allowed]
        for name, seen in first.seen.items():
            for kind in wanted:
                error = local_error(seen, RECIPES[kind], self.scale)
                if error is None:
                    continue
                mine = self.errors.setdefault(name, {})
                mine[kind] = error if kind not in mine else mine[kind].merged(error)
                if mine[kind].worst > self._limit(mine, kind):
                    self.mark(name, kind, _why(mine[kind]))
            seen.sample = None
        for name, largest in self._largest.items():
            most = max((largest.get(what, 0.0) for what in ("input", "weight", "output")), default=0.0)
            if "fp16" in self._allowed and multiplies(self.modules[name]) and most > HEADROOM * FP16.largest:
                self.mark(name, "fp16", f"{most:.3g} of {FP16.largest:.0f}")

    def _limit(self, mine: Mapping[str, LocalError], kind: str) -> float:
        """Relative error above which a format breaks a module.

        Twice the usual limit if fp8 is merely coarser than bf16 and loses nothing to its range: early in training all
        rows are nearly equal, and their differences are small in any format.
        """
        half = mine.get("bf16")
        coarse = kind.startswith("fp8") and half is not None and mine[kind].worst <= COARSER * half.worst
        return 2 * self._most if coarse else self._most

    def mark(self, name: str, kind: str, why: str) -> None:
        """Record that a format breaks a module; the first reason is kept."""
        self.breaks.setdefault(name, {}).setdefault(kind, why)

    def broken(self, kind: str) -> list[str]:
        """Modules that break in a format."""
        return [name for name, reasons in self.breaks.items() if kind in reasons]

    def ranked(self, kind: str, kept: Mapping[str, str]) -> list[str]:
        """The other modules with matrix products, largest error in the format first."""
        errors = {name: each[kind].worst for name, each in self.errors.items() if kind in each and name not in kept}
        rest = [name for name in self.works if multiplies(self.modules[name]) and name not in {**kept, **errors}]
        return [*sorted(errors, key=lambda name: -errors[name]), *rest]

    def rows(self) -> Iterator[Row]:
        """Rows of the plan's table."""
        for name, largest in self._largest.items():
            errors = {kind: asdict(error) for kind, error in self.errors.get(name, {}).items()}
            breaks = self.breaks.get(name, {})
            kind = type(self.modules[name]).__name__
            yield Row(name=name, kind=kind, largest=dict(largest), errors=errors, breaks=dict(breaks))

    def _loss_scale(self) -> float:
        most = max(
            (
                max(each.get("grad_output", 0.0), each.get("grad_weight", 0.0))
                for name, each in self._largest.items()
                if multiplies(self.modules[name])
            ),
            default=0.0,
        )
        if not 0 < most < math.inf:
            return 1.0
        return min(LARGEST_SCALE, max(1.0, 2.0 ** math.floor(math.log2(HEADROOM * FP16.largest / most))))


def _not_finite(what: str) -> UsageError:
    return UsageError(f"{what} in fp32", fix="`stayfinite check --build` says why")


def _why(error: LocalError) -> str:
    values = {"output": error.output, "grad_input": error.grad_input, "grad_weight": error.grad_weight}
    what = max(values, key=lambda name: values[name])
    worst = values[what]
    lost = f", {error.lost:.0%} of values become 0" if error.lost >= 0.01 else ""
    words = {"output": "output", "grad_input": "gradient of its input", "grad_weight": "gradient of its weight"}[what]
    return f"{words} does not fit{lost}" if math.isinf(worst) else f"{words} {worst:.0%} off{lost}"
