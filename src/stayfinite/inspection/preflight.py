"""``preflight(model, optimizer, batch, forward=...)``: check a training before launch."""

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
from stayfinite.inspection.bench.inputs import error_in_words
from stayfinite.inspection.bench.loss_of import forward_for
from stayfinite.inspection.bench.wrong_use import check_parts_of_training
from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.notes import Notes

PROBES = (
    "banner", "devices", "optimizer", "modes", "loss", "gradients", "graph", "headroom", "eight_bits",
    "mixed_precision", "learning", "loader", "schedule", "validation", "metric",
)  # fmt: skip
"""Modules with ``look(bench, notes)``, in check list order."""


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
    """Check a training before its first step.

    Examples:
        >>> stayfinite.preflight(model, optimizer, batch, forward)
        No findings.

    Everything is restored on return: weights, moments, generators, buffers, modes, gradients.

    Arguments:
        model: on its device, as it will be trained.
        optimizer: as it will be used.
        batch: a real one.
        forward: ``forward(batch) -> loss``, with the training's own autocast; by default ``model(**batch).loss``.
            It may also return a mapping with a loss in it, or a tuple that starts with it.
        scaler: the training's ``torch.amp.GradScaler``, for fp16.
        loader: the training's loader, to be checked as well.
        scheduler: the learning-rate schedule; it is run ahead and restored.
        validation: a validation batch or loader, to check for equal preprocessing and different rows.
        metric: ``metric(batch) -> number``, as evaluation computes it, to check that it can change.
        precision: the intended precision, if `forward` does not show it: fp16, bf16, fp32.
        steps: limit of the learning test; 0 to skip it.

    Raises:
        UsageError: the arguments are not a training: no module, no optimizer, no way to compute a loss.

    Returns:
        Findings, most severe first; no error or warning means ready to launch.
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
    """Like `preflight`, with the banner and the whole check list.

    ``lr_range`` finds the learning rates that work. ``stalled``: the loss is known to stagnate, so a higher rate is
    tried even if it falls.
    """
    check_parts_of_training(model, optimizer, scaler, steps)
    run = forward_for(model, batch, forward)
    bench = Bench(
        model=model, optimizer=optimizer, batch=batch, forward=run, scaler=scaler, loader=loader, scheduler=scheduler,
        validation=validation, metric=metric, precision=precision, steps=steps, lr_range=lr_range, stalled=stalled,
    )  # fmt: skip
    notes = Notes()
    with bench.kept.undone():
        for name in PROBES:
            _look(name, bench, notes)
    return conclude(notes)


def _look(name: str, bench: Bench, notes: Notes) -> None:
    """Run one probe. If it fails, report that and undo its changes."""
    try:
        with bench.kept.tidied():
            import_module(f"stayfinite.inspection.probes.{name}").look(bench, notes)
    except StayfiniteError:
        raise
    except Exception as error:  # a model can raise anything in a probe
        skipped = f"the check failed: {error_in_words(error):.200}"
        notes.check(name.replace("_", " ").capitalize(), "check completed", skipped=skipped)
