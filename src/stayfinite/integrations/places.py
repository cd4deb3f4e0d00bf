"""Default run directories of integrations."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final, Literal


class Default(Enum):
    """No run directory was given."""

    PLACE = "in the framework's own output directory"


DEFAULT: Final[Literal[Default.PLACE]] = Default.PLACE


def free_place(wanted: Path, *, again: bool) -> Path:
    """The wanted directory, or ``-2``, ``-3`` … if it has another run; ``again`` continues that run."""
    place, number = wanted, 1
    while not again and (place / "run.json").exists():
        number += 1
        place = wanted.with_name(f"{wanted.name}-{number}")
    return place
