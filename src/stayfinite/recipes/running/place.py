"""Choose device and precision; ``--precision plan`` and ``--precision precision.json``: train by a precision plan."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import nn
from torch.optim import Optimizer

from stayfinite.core.policy import Precision
from stayfinite.errors import UsageError
from stayfinite.measure.device import named_device
from stayfinite.precision.plan import PrecisionPlan
from stayfinite.precision.planning import plan_precision

PrecisionChoice = Literal["auto", "fp32", "bf16", "fp16"]
PlannedPrecision = str
"""One of these, `plan`, or a plan file."""


def choose_device(asked: str) -> torch.device:
    """The requested device; `auto` is CUDA if available. Raises UsageError if there is no such device."""
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return named_device(asked)


def choose_precision(
    asked: str, device: torch.device, say: Callable[[str], None], overflow: Callable[[], str] = lambda: "not measured"
) -> Precision:
    """The precision. `auto` is bf16 if the card supports it, fp16 if proved safe, else fp32.

    Arguments:
        overflow: measures a step in fp16 and returns the problem, empty if none. Called only on a card without bf16.
            CPUs use fp32: half precision is slower there.
    """
    if asked != "auto":
        return cast(Precision, asked)
    if device.type != "cuda":
        say(f"computing in fp32 on {device}")
        return "fp32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        say(f"computing in bf16 on {torch.cuda.get_device_name(device)}")
        return "bf16"
    why = overflow()
    name = torch.cuda.get_device_name(device)
    if why:
        say(f"computing in fp32 on {name}: no bf16, and fp16 would overflow ({why})")
        return "fp32"
    say(f"computing in fp16 on {name}: no bf16, and a measured step fits fp16")
    return "fp16"


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
