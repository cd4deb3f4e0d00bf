"""What a program writes beside the guard: its settings in run.json, its outcome in result.json."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sized
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError

RUN, RESULT = "run.json", "result.json"
PLAN = ("steps", "minutes", "ends")
"""What run.json says of how long this launch is to be."""
VERSION = 1
LONGEST = 100 * 365 * 24 * 60
"""Minutes; what is longer has no end."""


def write_launch(directory: Path, recipe: str, config: Any, **more: Any) -> None:
    """Say in run.json which recipe was started with which settings; what the guard wrote there stays, no older plan."""
    directory.mkdir(parents=True, exist_ok=True)
    known = read_record(directory / RUN) if (directory / RUN).exists() else {"version": VERSION, "launches": []}
    known = {name: value for name, value in known.items() if name not in PLAN}
    write_record(directory / RUN, known | {"recipe": recipe, "config": asdict(config)} | more)


def figures(training: Sized, validation: Sized, *, streamed: bool = False) -> dict[str, int]:
    """How many rows are trained on and held out, for run.json and the card of an export.

    Arguments:
        streamed: the rows to train on are a sample of those that there are.
    """
    return {"sampled_rows" if streamed else "training_rows": len(training), "validation_rows": len(validation)}


def write_end(directory: Path, minutes: float | None, *, used: float = 0.0) -> None:
    """Say in run.json that training has so many minutes and when they are over, the clock running from now on.

    Arguments:
        minutes: of the whole training; None where no time ends it, and nothing is written then.
        used: minutes that earlier processes have used.
    """
    if minutes is None or not minutes <= LONGEST:
        return
    ends = datetime.now(UTC) + timedelta(minutes=max(0.0, minutes - used))
    write_record(
        directory / RUN,
        read_record(directory / RUN) | {"minutes": minutes, "ends": ends.isoformat(timespec="seconds")},
    )


def read_launch(directory: str | os.PathLike[str], recipe: str) -> dict[str, Any]:
    """The settings that a run of this recipe was started with.

    Raises:
        UsageError: it is no directory of such a run.
    """
    path = Path(directory) / RUN
    if not path.is_file():
        raise UsageError(f"{directory} is not a run directory: {RUN} is missing", fix="name its --output-dir")
    record = read_record(path)
    if record.get("recipe") != recipe or not isinstance(record.get("config"), dict):
        raise UsageError(f"{path} is from {record.get('recipe') or 'another program'}, not {recipe}")
    return dict(record["config"])


def settings_of(kind: type[Any], recorded: Mapping[str, Any]) -> Any:
    """Recorded settings as the dataclass that they came from: lists are tuples again, unknown names are passed over."""
    names = kind.__dataclass_fields__
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in recorded.items()}
    return kind(**{name: value for name, value in plain.items() if name in names})


def write_result(directory: Path, record: Mapping[str, Any]) -> None:
    """Write what the training came to; numbers that are not finite become null."""
    write_record(directory / RESULT, {"version": VERSION} | _plain(dict(record)))


def read_record(path: Path) -> dict[str, Any]:
    """A record that was written; empty where it is no mapping.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}", fix="move it away, or use another --output-dir") from error
    return record if isinstance(record, dict) else {}


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all."""
    aside = path.with_name(path.name + ".new")
    aside.write_text(json.dumps(record, indent=1, ensure_ascii=False), encoding="utf-8")
    aside.replace(path)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
