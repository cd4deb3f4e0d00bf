"""Where an integration writes the run when nobody has said."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final, Literal


class Default(Enum):
    """Nothing was said."""

    PLACE = "in the framework's own output directory"


DEFAULT: Final[Literal[Default.PLACE]] = Default.PLACE


def free_place(wanted: Path, *, again: bool) -> Path:
    """The wanted directory, or ``-2``, ``-3`` … where it holds another run; ``again`` to go on with that one."""
    place, number = wanted, 1
    while not again and (place / "run.json").exists():
        number += 1
        place = wanted.with_name(f"{wanted.name}-{number}")
    return place
