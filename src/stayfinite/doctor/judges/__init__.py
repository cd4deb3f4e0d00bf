"""Turn the record of a program into findings. Each judge covers one topic and stays silent without evidence."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.doctor.judges import (
    augmenting,
    calls,
    copies,
    course,
    data,
    losses,
    metrics,
    optimizing,
    schedules,
)
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told

JUDGES = (optimizing, losses, calls, schedules, data, augmenting, metrics, copies, course)


def judge_all(program: Program) -> Iterator[Told]:
    """All findings that the record supports."""
    for each in JUDGES:
        try:
            yield from each.judge(program)
        except Exception as error:  # a program may leave anything behind
            program.troubles.append(f"{each.__name__}: {type(error).__name__}: {error}"[:300])
