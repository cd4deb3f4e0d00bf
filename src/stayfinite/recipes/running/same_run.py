"""Going on with a run: whether it is the same training, and whether it is over already."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.running.records import RESULT, RUN, read_launch


def check_same_run(directory: Path, recipe: str, config: Mapping[str, Any], decisive: Sequence[str]) -> None:
    """Refuse to go on with a run that was started as another training.

    Arguments:
        directory: of the run; nothing is looked at where it has no checkpoint.
        config: the settings of now.
        decisive: names of settings without which the old weights, or the old order of data, make no sense.

    Raises:
        UsageError: it is of another program, or a decisive setting was another one.
    """
    if not (directory / RUN).is_file() or not any((directory / "checkpoints").glob("step-*")):
        return
    known = read_launch(directory, recipe)
    plain = json.loads(json.dumps(dict(config)))
    changed = [name for name in decisive if name in known and known[name] != plain.get(name)]
    if changed:
        words = "; ".join(f"{name} was {known[name]!r} and is {plain.get(name)!r}" for name in changed)
        raise UsageError(
            f"{directory} holds a training with other settings: {words}",
            fix="give the same settings to go on with it, or another --output-dir to start anew",
        )


def finished_result(directory: Path, steps: int) -> dict[str, Any] | None:
    """The recorded result of a run that has taken all its steps; None where there is something left to do."""
    try:
        record = json.loads((directory / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and int(record.get("steps") or 0) >= steps else None
