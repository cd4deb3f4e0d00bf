"""``preflight(model, optimizer, batch, forward=...)``: know before you launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.finding import Findings
from stayfinite.errors import StayfiniteError
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.loss_of import forward_for
from stayfinite.inspection.bench.wrong_use import check_parts_of_training
from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.notes import Notes

PROBES = (
    "banner", "devices", "optimizer", "modes", "loss", "gradients", "graph", "headroom", "eight_bits",
    "mixed_precision", "learning", "loader", "schedule", "validation", "metric",
)  # fmt: skip
"""In the order of the check list; each is a module with ``look(bench, notes)``."""


def preflight(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    forward: Callable[[Any], Any] | None = None,
    scaler: GradScaler | None = None,
    *,
    loader: Iterable[Any] | None = None,
    scheduler: Any = None,
    validation: Any = None,
    metric: Callable[[Any], Any] | None = None,
    precision: str | None = None,
    steps: int = 10,
) -> Findings:
    """Look at a training before its first step.

    Examples:
        >>> stayfinite.preflight(model, optimizer, batch, forward)
        No findings.

    Everything is as before when this returns: weights, moments, generators, buffers, modes, gradients.

    Arguments:
        model: on its device, as it will be trained.
        optimizer: as it will be used.
        batch: a real one.
        forward: ``forward(batch) -> loss``, with the training's own autocast; by default ``model(**batch).loss``.
            What it returns may also be a mapping with a loss in it, or a tuple that begins with it.
        scaler: the training's ``torch.amp.GradScaler``, for fp16.
        loader: the training's loader, to be looked at as well.
        scheduler: the learning-rate schedule; it is run ahead and put back.
        validation: a validation batch, or a loader of them: prepared as the training batch is, and of other rows?
        metric: ``metric(batch) -> number``, in evaluation as the training computes it: can it move?
        precision: what the training is meant to compute in, where `forward` does not show it: fp16, bf16, fp32.
        steps: how many steps the learning test may take; 0 for none.

    Raises:
        UsageError: what was given is no training: no module, no optimizer, no way to a loss.

    Returns:
        What is wrong or worth knowing, the gravest first; nothing of severity error or warning when it is ready.
    """
    found = inspect_training(
        model, optimizer, batch, forward, scaler, loader=loader, scheduler=scheduler, validation=validation,
        metric=metric, precision=precision, steps=steps,
    )  # fmt: skip
    return Findings(found.findings)


def inspect_training(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    forward: Callable[[Any], Any] | None = None,
    scaler: GradScaler | None = None,
    *,
    loader: Iterable[Any] | None = None,
    scheduler: Any = None,
    validation: Any = None,
    metric: Callable[[Any], Any] | None = None,
    precision: str | None = None,
    steps: int = 10,
    lr_range: bool = False,
    stalled: bool = False,
) -> Inspection:
    """As `preflight`, with the banner and the whole check list.

    ``lr_range`` finds the learning rates that work. ``stalled`` says that the loss is known to stand still: then a
    higher rate is tried however evenly it falls.
    """
    check_parts_of_training(model, optimizer, scaler, steps)
    bench = Bench(
        model=model,
        optimizer=optimizer,
        batch=batch,
        forward=forward_for(model, batch, forward),
        scaler=scaler,
        loader=loader,
        scheduler=scheduler,
        validation=validation,
        metric=metric,
        precision=precision,
        steps=steps,
        lr_range=lr_range,
        stalled=stalled,
    )
    notes = Notes()
    with bench.kept.undone():
        for name in PROBES:
            _look(name, bench, notes)
    return conclude(notes)


def _look(name: str, bench: Bench, notes: Notes) -> None:
    """Run one probe; its own failure is a line that says so, and what it changed is put back."""
    try:
        with bench.kept.tidied():
            import_module(f"stayfinite.inspection.probes.{name}").look(bench, notes)
    except StayfiniteError:
        raise
    except Exception as error:  # whatever somebody's model may do to a probe
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        notes.check(name.replace("_", " ").capitalize(), "check completed", skipped=f"the check failed: {words:.200}")
