"""Run ``stayfinite check`` on the training before its first step."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.finding import Finding
from stayfinite.core.policy import Precision
from stayfinite.errors import NotReady
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.inspection.inspection import Inspection
from stayfinite.inspection.preflight import inspect_training

Check = Literal["stop", "warn", "off"]
"""What to do about findings before step 1."""
FILE = "check.json"
OF_FP16 = ("fp16-overflow", "fp16-overflow-model-family", "loss-scale-collapse")
"""Causes that another precision fixes."""


def look_before_start(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    forward: Callable[[Any], Any],
    *,
    precision: Precision,
    scaler: GradScaler | None,
    then: Check,
    directory: Path,
    say: Callable[[str], None],
    steps: int = 10,
) -> Inspection | None:
    """Check the training and write ``check.json``. Leaves the training unchanged.

    Arguments:
        forward: as passed to the guard; its precision is applied here.
        then: `stop` raises on an error, `warn` prints it, `off` skips the check.

    Raises:
        NotReady: training would fail.
    """
    if then == "off":
        return None
    control = PrecisionControl(precision, next(model.parameters()).device)

    def in_precision(batch: Any) -> Any:
        with control.autocast():
            return forward(batch)

    found = inspect_training(model, optimizer, batch, in_precision, scaler, steps=steps)
    (directory / FILE).write_text(json.dumps(found.to_json(), indent=1), encoding="utf-8")
    wrong = [each for each in found.findings if each.severity == "error"]
    for each in found.findings:
        if each.severity != "info":
            fix = _own_fix(each, precision)
            say(f"check: {each.severity}: {each.title} ({each.code} {each.cause}). {fix}")
    if wrong and then == "stop":
        worst = wrong[0]
        raise NotReady(
            f"the check before step 1 found {worst.code} ({worst.cause}): {worst.title}",
            fix=f"{_own_fix(worst, precision).rstrip('. ')}. To start anyway: --check warn",
        )
    if not any(each.severity != "info" for each in found.findings):
        looked = sum(line.status != "skip" for line in found.lines)
        say(f"check: ready to launch, {looked} checks, no problem found")
    return found


def holds_in_fp16(model: nn.Module, optimizer: Optimizer, batch: Any, forward: Callable[[Any], Any]) -> str:
    """Why this step would fail in fp16; empty if proved safe."""
    found = inspect_training(model, optimizer, batch, forward, steps=0, precision="fp16")
    guilty = [each for each in found.findings if each.cause in OF_FP16]
    if guilty:
        return guilty[0].title
    looked = [line for line in found.lines if line.group == "Precision" and line.status == "pass"]
    return "" if looked else "the fp16 headroom could not be measured"


def scaler_for(precision: Precision, device: torch.device) -> GradScaler | None:
    """A GradScaler for fp16, else None."""
    return GradScaler(device.type) if precision == "fp16" else None


def _own_fix(found: Finding, precision: Precision) -> str:
    """The fix, starting with the recipe's own flag."""
    return f"--precision bf16. Or: {found.fix}" if precision == "fp16" and found.cause in OF_FP16 else found.fix
