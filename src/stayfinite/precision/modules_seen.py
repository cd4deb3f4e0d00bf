"""What was seen of each module at all points: its largest numbers, its errors in each format, and where it breaks."""

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
"""How many times bf16's error fp8's may be by its 3 bits instead of 7: 16, and some room."""


class ModulesSeen:
    """Grows from batch to batch and from point to point.

    Arguments:
        allowed: the formats that come into question.
        most: relative error of a module's own output or gradients beyond which it breaks.
    """

    def __init__(self, allowed: tuple[str, ...], most: float) -> None:
        self._allowed, self._most = allowed, most
        self._largest: dict[str, dict[str, float]] = {}
        self.errors: dict[str, dict[str, LocalError]] = {}
        self.works: dict[str, Work] = {}
        self.modules: dict[str, nn.Module] = {}
        self.breaks: dict[str, dict[str, str]] = {}
        """By module, the formats that it breaks in, and why."""
        self.scale = LARGEST_SCALE
        """The largest power of two at which no gradient of a product comes near the end of fp16's range."""

    def take_in(self, found: FullStep) -> None:
        """The step of one more batch.

        Raises:
            UsageError: its loss is not finite in fp32, or something in it is NaN; an infinity may be a mask.
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
        """Each module by itself in each format."""
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
        """Beyond which error a module breaks.

        Where fp8 only rounds more coarsely than bf16 does, and loses nothing to its range, twice as much is allowed: a
        young model gives all rows nearly the same, and what tells them apart is small in any format.
        """
        half = mine.get("bf16")
        coarse = kind.startswith("fp8") and half is not None and mine[kind].worst <= COARSER * half.worst
        return 2 * self._most if coarse else self._most

    def mark(self, name: str, kind: str, why: str) -> None:
        """A module breaks in a format; the first reason stays."""
        self.breaks.setdefault(name, {}).setdefault(kind, why)

    def broken(self, kind: str) -> list[str]:
        """The modules that break in a format."""
        return [name for name, reasons in self.breaks.items() if kind in reasons]

    def ranked(self, kind: str, kept: Mapping[str, str]) -> list[str]:
        """The other modules that multiply, those with the largest errors in a format first."""
        errors = {name: each[kind].worst for name, each in self.errors.items() if kind in each and name not in kept}
        rest = [name for name in self.works if multiplies(self.modules[name]) and name not in {**kept, **errors}]
        return [*sorted(errors, key=lambda name: -errors[name]), *rest]

    def rows(self) -> Iterator[Row]:
        """For the table."""
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
