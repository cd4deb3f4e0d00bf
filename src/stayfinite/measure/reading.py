"""Pack one step's numbers into one vector, so a single copy brings them to the host."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer

from stayfinite.core.signals import Signals
from stayfinite.core.spikes import Verdict
from stayfinite.measure.gradients import GradientNorms
from stayfinite.measure.roster import SHOWN, Roster

RANK_COLUMNS = 2
"""Columns of a rank's row: its loss, and 1 if its gradients were not finite before averaging."""


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Gradients of all ranks, if this one holds only some of the parameters."""

    names: tuple[str, ...]
    norms: Tensor


@dataclass(frozen=True, slots=True)
class Reading:
    """Measurements of a step, still on the device."""

    step: int
    loss: Tensor
    gradients: GradientNorms
    lr: float | Tensor | None
    loss_scale: Tensor | None
    parts: dict[str, Tensor]
    batch: int
    batch_shape: str
    named: dict[str, Tensor] = field(default_factory=dict)
    """The caller's signals by name; with several ranks, this rank's."""
    ranks: Tensor | None = None
    """With several ranks, one row each: its loss, and 1 if its gradients were not finite."""
    mismatch: str = ""
    """If a re-run of the step differed: how, in words."""
    mismatched: tuple[int, ...] = ()
    """Ranks on which it differed."""
    everywhere: Everywhere | None = None
    """Norms to judge by, if ``gradients`` covers only this rank's parameters."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the host knows of a packed reading without its numbers."""

    reading_step: int
    lr: float | None
    lr_inside: bool
    scaled: bool
    judged: bool
    """Whether the device judged the step and its verdict is included."""
    told: bool
    """Whether an engine reported the norm, so per-parameter norms are unknown."""
    parts: tuple[str, ...]
    named: tuple[str, ...]
    indices: tuple[int, ...]
    batch: int
    batch_shape: str
    mismatch: str = ""
    mismatched: tuple[int, ...] = ()
    names: tuple[str, ...] | None = None
    """Names of all parameters, if they are not the roster's."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A reading on the host."""

    signals: Signals
    verdict: Verdict
    limit: float
    """Highest compressed norm that the device allowed; infinite if no device judged."""
    names: tuple[str, ...]
    """Names of all parameters."""
    indices: tuple[int, ...]
    """Indices of parameters with a gradient."""
    values: list[float]
    """Their norms."""

    @property
    def norms(self) -> dict[str, float]:
        return dict(zip(map(self.names.__getitem__, self.indices), self.values, strict=True))


def pack(reading: Reading, judged: Tensor | None = None) -> tuple[Envelope, Tensor]:
    """Pack a reading into one float64 vector, with what is needed to unpack it.

    Arguments:
        judged: loss, norm, verdict and limit from ``DeviceSpikes``, if the device judged the step.
    """
    device = reading.gradients.total.device
    width = torch.float32 if device.type == "mps" else torch.float64
    lr = reading.lr
    on_device = isinstance(lr, Tensor) and lr.device.type != "cpu"
    numbers = [] if judged is not None else [reading.loss, reading.gradients.total]
    numbers += [*reading.parts.values(), *reading.named.values()]
    if reading.loss_scale is not None:
        numbers.append(reading.loss_scale)
    if isinstance(lr, Tensor) and on_device:
        numbers.append(lr)
    everywhere = reading.everywhere
    norms = reading.gradients.norms if everywhere is None else everywhere.norms
    scalars = [value.detach().reshape(1).to(device, width, non_blocking=True) for value in numbers]
    envelope = Envelope(
        reading_step=reading.step,
        lr=None if on_device or lr is None else float(lr),
        lr_inside=on_device,
        scaled=reading.loss_scale is not None,
        judged=judged is not None,
        told=reading.gradients.told,
        parts=tuple(reading.parts),
        named=tuple(reading.named),
        indices=reading.gradients.indices if everywhere is None else tuple(range(len(everywhere.names))),
        batch=reading.batch,
        batch_shape=reading.batch_shape,
        mismatch=reading.mismatch,
        mismatched=reading.mismatched,
        names=None if everywhere is None else everywhere.names,
    )
    head = [] if judged is None else [judged]
    rows = [] if reading.ranks is None else [reading.ranks.reshape(-1).to(width)]
    return envelope, torch.cat([*head, *scalars, *rows, norms.to(width)])


def unpack(envelope: Envelope, values: list[float], roster: Roster) -> Opened:
    """Convert the packed numbers to signals."""
    names = roster.names if envelope.names is None else envelope.names
    scalars = iter(values[: len(values) - len(envelope.indices)])
    norms = values[len(values) - len(envelope.indices) :]
    loss, total = next(scalars), next(scalars)
    verdict, limit = Verdict.FINE, math.inf
    if envelope.judged:
        verdict, limit = Verdict(int(next(scalars))), next(scalars)
    parts = {name: next(scalars) for name in envelope.parts}
    named = {name: next(scalars) for name in envelope.named}
    scale = next(scalars) if envelope.scaled else None
    lr = next(scalars) if envelope.lr_inside else envelope.lr
    ranks = list(scalars)
    bad = () if math.isfinite(total) else tuple(
        index for index, norm in sorted(zip(envelope.indices, norms, strict=True)) if not math.isfinite(norm)
    )  # fmt: skip
    signals = Signals(
        step=envelope.reading_step,
        loss=loss,
        grad_norm=total,
        lr=lr,
        loss_scale=scale,
        parts=parts,
        named=named,
        batch=envelope.batch,
        batch_shape=envelope.batch_shape,
        bad_parameters=tuple(names[index] for index in bad[:SHOWN]),
        bad_count=len(bad),
        bad_ranks=envelope.mismatched
        or tuple(
            rank
            for rank in range(len(ranks) // RANK_COLUMNS)
            if not math.isfinite(ranks[RANK_COLUMNS * rank]) or ranks[RANK_COLUMNS * rank + 1] != 0
        ),
        mismatch=envelope.mismatch,
        silent=0 if envelope.told else _silent(envelope.indices, norms, len(names)),
        parameters=0 if envelope.told else len(names),
    )
    return Opened(signals, verdict, limit, names, envelope.indices, norms)


def highest_lr(optimizer: Optimizer) -> float | Tensor | None:
    """Largest learning rate of the groups, or None; a tensor only if reading it would sync.

    A non-finite rate comes first: a comparison would lose a NaN.
    """
    # transformers' Adafactor has lr None when it computes its own.
    rates = [rate for group in optimizer.param_groups if (rate := group.get("lr")) is not None]
    if any(isinstance(rate, Tensor) and rate.device.type != "cpu" for rate in rates):
        return torch.stack([torch.as_tensor(rate) for rate in rates]).max()
    known = [float(rate) for rate in rates]
    return next((rate for rate in known if not math.isfinite(rate)), max(known, default=None))


def _silent(indices: tuple[int, ...], norms: list[float], parameters: int) -> int:
    if len(indices) == parameters and 0.0 not in norms:
        return 0
    nonzero = 0
    for index, norm in zip(indices, norms, strict=True):
        if norm != 0:
            nonzero |= 1 << index
    return ~nonzero & ((1 << parameters) - 1)
