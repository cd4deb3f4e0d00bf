"""What was seen of a program -> findings: a file a matter, each states a mechanism and is quiet without it."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.doctor.judges import (
    answers,
    augmenting,
    copies,
    course,
    data,
    losses,
    metrics,
    modes,
    optimizing,
    scaling,
    schedules,
)
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told

JUDGES = (optimizing, scaling, losses, modes, schedules, data, augmenting, metrics, copies, answers, course)


def judge_all(program: Program) -> Iterator[Told]:
    """Every finding that what was seen allows."""
    for each in JUDGES:
        try:
            yield from each.judge(program)
        except Exception as error:  # whatever a program may have left behind
            program.troubles.append(f"{each.__name__}: {type(error).__name__}: {error}"[:300])
