"""The error that ends a stopped training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stayfinite.core.decision import Code, Decision
from stayfinite.errors import BadStep, DeviceFault, TrainingDiverged


def where(decision: Decision) -> str:
    """Step and batch in words."""
    signals = decision.signals
    shape = f" ({signals.batch_shape})" if signals.batch_shape else ""
    return f"step {signals.step}, batch {signals.batch}{shape}"


UNTOUCHED = "no refused step changed the weights"
GENERAL = (
    "inspect the named batch and parameters. Under fp16, try the batch in fp32 or bf16. Otherwise lower the learning "
    "rate or lengthen the warmup"
)
"""Advice if nothing better is known."""


def stopped(decision: Decision, found: Mapping[str, Any] | None = None) -> TrainingDiverged | DeviceFault:
    """Error for a decision to stop.

    Arguments:
        found: autopsy of that trouble, if any: its verdict, and a verified fix instead of general advice.
    """
    if decision.code is Code.REPLAY_MISMATCH:
        return DeviceFault(
            f"training stopped at {where(decision)}: {decision.reason}",
            step=decision.step,
            code=decision.code,
            fix=f"{UNTOUCHED}. Resume on another machine; `stayfinite hardware RUNS` names the suspect",
        )
    kind = BadStep if decision.code is Code.STRICT else TrainingDiverged
    verdict, advice = ("", GENERAL) if found is None else (found["verdict"], GENERAL)
    if found is not None and found["fix"]["verified"]:
        verdict, _, proved = verdict.partition(" Fix: ")
        advice = proved.removesuffix(".") or found["fix"]["text"]
    return kind(
        f"training stopped at {where(decision)}: {decision.reason}" + (f". Autopsy: {verdict}" if verdict else ""),
        step=decision.step,
        code=decision.code,
        fix=f"{UNTOUCHED}. {advice[:1].upper()}{advice[1:]}",
    )
