"""``--precision plan`` and ``--precision precision.json``: train by a precision plan."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.optim import Optimizer

from stayfinite.core.policy import Precision
from stayfinite.errors import UsageError
from stayfinite.precision.plan import PrecisionPlan
from stayfinite.precision.planning import plan_precision

FILE = "precision.json"
PLAIN = ("auto", "fp32", "bf16", "fp16")


def is_planned(asked: str) -> bool:
    """Whether a plan is requested, as `plan` or a file. Raises UsageError for unknown values."""
    if asked in PLAIN:
        return False
    if asked == "plan" or asked.endswith(".json"):
        return True
    raise UsageError(f"--precision {asked}: unknown", fix=f"{', '.join(PLAIN)}, plan, or a plan file")


def before_plan(asked: str) -> str:
    """Precision to build a model for, before its plan is applied."""
    if not is_planned(asked):
        return asked
    return "auto" if asked == "plan" else _computes_in(PrecisionPlan.load(asked))


def use_plan(
    asked: str,
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    forward: Callable[[Any], Any],
    *,
    directory: Path,
    say: Callable[[str], None],
    several: bool = False,
) -> Precision:
    """Apply the requested plan and save it with the run. Returns the precision for the guard.

    Arguments:
        asked: `plan` to make one for this card unless the run has one, or a file.
        directory: of the run.
        several: whether there are other ranks, which would each make their own plan.
    """
    kept = directory / FILE
    if asked != "plan":
        plan = PrecisionPlan.load(asked)
    elif kept.exists():
        plan = PrecisionPlan.load(kept)
    elif several:
        raise UsageError(
            "--precision plan does not work with several ranks",
            fix="make the plan in one process and pass its file: --precision precision.json",
        )
    elif batch is None:
        raise UsageError(
            "--precision plan: no batch before the first step",
            fix="make the plan first: stayfinite precision --build my_train:build -o precision.json",
        )
    else:
        plan = plan_precision(model, optimizer, batch, forward)
    plan.apply(model, region=False)
    if not several or not kept.exists():
        directory.mkdir(parents=True, exist_ok=True)
        plan.save(kept)
    say(f"computing with a precision plan: {plan}")
    for note in plan.notes:
        say(note)
    if plan.base == "tf32":
        torch.set_float32_matmul_precision("high")
    return cast(Precision, _computes_in(plan))


def plan_again(model: nn.Module, run_dir: Path) -> None:
    """Apply the plan of a run, if any, to its rebuilt model."""
    if (kept := run_dir / FILE).exists():
        PrecisionPlan.load(kept).apply(model, region=False)


def _computes_in(plan: PrecisionPlan) -> str:
    return "fp32" if plan.base == "tf32" else plan.base
