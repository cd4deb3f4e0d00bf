"""``preflight(model, optimizer, batch, forward=...)``: know before you launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.finding import Finding
from stayfinite.inspection.bench import Bench
from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.notes import Notes

PROBES = (
    "banner", "devices", "optimizer", "modes", "loss", "gradients", "graph", "headroom", "mixed_precision", "learning",
    "loader",
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
    precision: str | None = None,
    steps: int = 10,
) -> list[Finding]:
    """Look at a training before its first step.

    Everything is as before when this returns: weights, moments, generators, buffers, modes, gradients.

    Arguments:
        model: on its device, as it will be trained.
        optimizer: as it will be used.
        batch: a real one.
        forward: ``forward(batch) -> loss``, with the training's own autocast; by default ``model(**batch).loss``.
        scaler: the training's ``torch.amp.GradScaler``, for fp16.
        loader: the training's loader, to be looked at as well.
        precision: what the training is meant to compute in, where `forward` does not show it: fp16, bf16, fp32.
        steps: how many steps the learning test may take; 0 for none.

    Returns:
        What is wrong or worth knowing, the gravest first; nothing of severity error or warning when it is ready.
    """
    found = inspect_training(model, optimizer, batch, forward, scaler, loader=loader, precision=precision, steps=steps)
    return list(found.findings)


def inspect_training(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    forward: Callable[[Any], Any] | None = None,
    scaler: GradScaler | None = None,
    *,
    loader: Iterable[Any] | None = None,
    precision: str | None = None,
    steps: int = 10,
) -> Inspection:
    """As `preflight`, with the banner and the whole check list."""
    bench = Bench(
        model=model,
        optimizer=optimizer,
        batch=batch,
        forward=forward or _loss_of(model),
        scaler=scaler,
        loader=loader,
        precision=precision,
        steps=steps,
    )
    notes = Notes()
    for name in PROBES:
        import_module(f"stayfinite.inspection.probes.{name}").look(bench, notes)
    return conclude(notes)


def _loss_of(model: nn.Module) -> Callable[[Any], Any]:
    def forward(batch: Any) -> Any:
        return model(**batch).loss

    return forward
