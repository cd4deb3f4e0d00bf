"""Default run directories of integrations."""

import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final, Literal


class Default(Enum):
    """No run directory was given."""

    PLACE = "in the framework's own output directory"


DEFAULT: Final[Literal[Default.PLACE]] = Default.PLACE


def place_of(run_dir: str | os.PathLike[str] | Default | None, usual: Callable[[], Path | None]) -> Path | None:
    """The run directory that was given, or the usual one if none was; None for nowhere."""
    if isinstance(run_dir, Default):
        return usual()
    return None if run_dir is None else Path(run_dir)


def agreed_place(home: str | os.PathLike[str], *, again: bool = False) -> Path:
    """A free ``stayfinite`` in a directory, chosen by rank 0 for all: it may write before another rank looks."""
    return agreed(free_place(Path(home) / "stayfinite", again=again))


def agreed(place: Path) -> Path:
    """Rank 0's choice on all ranks."""
    from torch import distributed

    found = [str(place)]
    if distributed.is_available() and distributed.is_initialized():
        distributed.broadcast_object_list(found)
    return Path(found[0])


def free_place(wanted: Path, *, again: bool) -> Path:
    """The wanted directory, or ``-2``, ``-3`` … if it has another run; ``again`` continues that run."""
    place, number = wanted, 1
    while not again and (place / "run.json").exists():
        number += 1
        place = wanted.with_name(f"{wanted.name}-{number}")
    return place
