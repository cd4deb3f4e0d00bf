"""Model outputs: identical for every row."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told, told

FEWEST_LOOKS = 4
LATE = 2
"""Number of last looks at which all rows had the same output."""
THROWN_UP = 3.0
"""A loss that rises to this multiple of its start within the first tenth of the steps was driven up by the rate."""


def judge(program: Program) -> Iterator[Told]:
    """Models that give every row the same output."""
    if program.bad is not None:
        return
    for seen in program.learning_models():
        looks = seen.same_answers
        if len(looks) < FEWEST_LOOKS or not all(looks[-LATE:]):
            continue
        name = type(seen.module).__name__
        call = 1 << (len(looks) - 1)
        said = f"{name} gave all rows of a batch the same output in the last {LATE} checks, up to call {call:,}."
        if _all_constant(program, seen.module):
            yield told(
                "bad-init", [said, "Every weight matrix began as a single constant, so its units stay identical."],
                weight=1.6, severity="error",
                fix="keep torch's default init, or draw the weights: nn.init.kaiming_normal_(weight)",
            )  # fmt: skip
            return
        course = program.main_loss().finite
        early = course[: max(2, len(course) // 10)]
        if not looks[0] and early and course[0] > 0 and max(early) > THROWN_UP * course[0]:
            yield told(
                "lr-too-high",
                [f"The loss rose from {course[0]:.4g} to {max(early):.4g} within {len(early)} steps.", said],
                confidence=0.85, weight=1.7,
            )  # fmt: skip
        else:
            began = (
                "It did so from the first call on." if looks[0] else "At first it did not: its units died in training."
            )
            yield told("dead-units", [said, began], confidence=0.85, weight=1.5, severity="error")
        return


def _all_constant(program: Program, module: nn.Module) -> bool:
    """Whether every weight matrix began as a single constant."""
    first = [program.first_weights.get(id(p)) for p in module.parameters() if p.dim() > 1 and p.numel() > 1]
    return bool(first) and all(each is not None and bool((each == each.reshape(-1)[0]).all()) for each in first)
