"""``preflight(model, optimizer, batch, forward=...)``: check a training before launch."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.autopsy.incidents.build import call_build
from stayfinite.core.finding import Findings
from stayfinite.errors import StayfiniteError, UsageError
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.given import check_parts_of_training, forward_for
from stayfinite.inspection.bench.inputs import error_in_words
from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes import evaluation, gradients, graph, headroom, learning, loss, parts
from stayfinite.inspection.probes import loader as loader_probe
from stayfinite.inspection.probes import optimizer as optimizer_probe

PROBES: dict[str, Callable[[Bench, Notes], None]] = {
    "banner": parts.look_at_launch, "devices": parts.look_at_devices, "optimizer": optimizer_probe.look,
    "modes": parts.look_at_modes, "loss": loss.look, "gradients": gradients.look, "graph": graph.look,
    "headroom": headroom.look, "eight_bits": parts.look_at_eight_bits,
    "mixed_precision": headroom.look_at_mixed_precision, "learning": learning.look,
    "loader": loader_probe.look, "schedule": optimizer_probe.look_at_schedule,
    "validation": evaluation.look_at_validation, "metric": evaluation.look_at_metric,
}  # fmt: skip
"""In check list order."""


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
    steps: int = 10,
    **more: Any,
) -> Inspection:
    """Like `preflight`, with the banner and the whole check list.

    ``more`` has further parts by their names in `Bench`. ``lr_range`` finds the learning rates that work. ``stalled``:
    the loss is known to stagnate, so a higher rate is tried even if it falls.
    """
    check_parts_of_training(model, optimizer, scaler, steps)
    run = forward_for(model, batch, forward)
    bench = Bench(model=model, optimizer=optimizer, batch=batch, forward=run, scaler=scaler, steps=steps, **more)
    notes = Notes()
    with bench.kept.undone():
        for name in PROBES:
            _look(name, bench, notes)
    return conclude(notes)


def _look(name: str, bench: Bench, notes: Notes) -> None:
    """Run one probe. If it fails, report that and undo its changes."""
    try:
        with bench.kept.tidied():
            PROBES[name](bench, notes)
    except StayfiniteError:
        raise
    except Exception as error:  # a model can raise anything in a probe
        skipped = f"the check failed: {error_in_words(error):.200}"
        notes.check(name.replace("_", " ").capitalize(), "check completed", skipped=skipped)


NAMES = ("model", "optimizer", "batch", "forward", "scaler", "scheduler", "loader", "precision", "validation", "metric")
"""Parts that a build may return, in tuple order."""
NEEDED = ("model", "optimizer", "batch")
EXAMPLE = (
    'def build(): ...; return {"model": model, "optimizer": optimizer, "batch": next(iter(loader)), '
    '"forward": lambda batch: model(**batch).loss}'
)


def inspect_build(build: str, *, steps: int = 10, lr_range: bool = False) -> Inspection:
    """Inspect the training that a function builds.

    Arguments:
        build: ``module:function``; the current directory is searched first.
        steps: limit of the learning test.
        lr_range: find the range of learning rates that works.

    Raises:
        UsageError: no such function, it fails, or its result is not a training.
    """
    return inspect_training(**parts_of_build(build), steps=steps, lr_range=lr_range)


def parts_of_build(build: str) -> dict[str, Any]:
    """The parts that a function builds, keyed by `NAMES`; None for missing ones. Raises UsageError if it fails."""
    return _parts(call_build(build, example=EXAMPLE), build)


def _parts(built: Any, named: str) -> dict[str, Any]:
    if isinstance(built, Mapping):
        unknown = [str(name) for name in built if name not in NAMES]
        if unknown:
            raise UsageError(f"--build {named}: unknown key {', '.join(unknown)}", fix=f"use {', '.join(NAMES)}")
        parts = {name: built.get(name) for name in NAMES}
    elif isinstance(built, tuple | list) and not hasattr(built, "_fields"):
        parts = _by_kind(list(built), named)
    else:
        parts = {name: getattr(built, name, None) for name in NAMES}
    if parts["batch"] is None and parts["loader"] is not None:
        parts["batch"] = next(iter(parts["loader"]), None)
    missing = [name for name in NEEDED if parts[name] is None]
    if missing:
        got = f"returned {type(built).__name__} without {' and '.join(missing)}"
        if len(missing) == len(NEEDED):
            got = f"returned {type(built).__name__}; expected {', '.join(NEEDED)}"
        raise UsageError(f"--build {named}: {got}", fix=EXAMPLE)
    return parts


def _by_kind(built: list[Any], named: str) -> dict[str, Any]:
    """The parts of a tuple: model and optimizer at any position, batch and forward in this order."""
    parts: dict[str, Any] = dict.fromkeys(NAMES)
    rest = []
    for item in built:
        if isinstance(item, nn.Module) and parts["model"] is None:
            parts["model"] = item
        elif isinstance(item, Optimizer) and parts["optimizer"] is None:
            parts["optimizer"] = item
        elif hasattr(item, "is_enabled") and hasattr(item, "unscale_"):
            parts["scaler"] = item
        elif callable(item) and not hasattr(item, "items") and parts["forward"] is None:
            parts["forward"] = item
        else:
            rest.append(item)
    if len(rest) > 1:
        raise UsageError(
            f"--build {named}: cannot tell which return value is the batch",
            fix=f"return a dict with names: {EXAMPLE}",
        )
    parts["batch"] = rest[0] if rest else None
    return parts
