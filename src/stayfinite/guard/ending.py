"""The error that a stopped training ends with."""

from __future__ import annotations

from stayfinite.core.decision import Code, Decision
from stayfinite.errors import BadStep, TrainingDiverged


def where(decision: Decision) -> str:
    """The step and the batch in words."""
    signals = decision.signals
    shape = f" ({signals.batch_shape})" if signals.batch_shape else ""
    return f"step {signals.step}, batch {signals.batch}{shape}"


def stopped(decision: Decision, verdict: str = "") -> TrainingDiverged:
    """The error for a decision to stop; its reason says what was tried, and the autopsy's verdict why it had to be."""
    kind = BadStep if decision.code is Code.STRICT else TrainingDiverged
    return kind(
        f"training stopped at {where(decision)}: {decision.reason}" + (f". Autopsy: {verdict}" if verdict else ""),
        step=decision.step,
        code=decision.code,
        fix="no refused step has touched the weights. Look at the named batch and parameters; under fp16 run the "
        "same batch in fp32 or bf16, where it is finite if fp16 is the cause; otherwise lower the learning rate or "
        "lengthen the warm-up",
    )
