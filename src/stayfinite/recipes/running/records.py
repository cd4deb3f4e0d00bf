"""Records of a run: settings in run.json, outcome in result.json."""

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
"""Keys of run.json that plan the length of this launch."""
VERSION = 1
LONGEST = 100 * 365 * 24 * 60
"""Minutes; longer means no limit."""


def write_launch(directory: Path, recipe: str, config: Any, **more: Any) -> None:
    """Write recipe and settings to run.json. Keeps the guard's entries, drops an earlier plan."""
    directory.mkdir(parents=True, exist_ok=True)
    known = read_record(directory / RUN) if (directory / RUN).exists() else {"version": VERSION, "launches": []}
    known = {name: value for name, value in known.items() if name not in PLAN}
    write_record(directory / RUN, known | {"recipe": recipe, "config": asdict(config)} | more)


def figures(training: Sized, validation: Sized, *, streamed: bool = False) -> dict[str, int]:
    """Row counts for run.json and the model card.

    Arguments:
        streamed: training rows are only a sample.
    """
    return {"sampled_rows" if streamed else "training_rows": len(training), "validation_rows": len(validation)}


def write_end(directory: Path, minutes: float | None, *, used: float = 0.0) -> None:
    """Write the time limit and the end to run.json, counting from now.

    Arguments:
        minutes: of the whole training; None writes nothing.
        used: minutes used by earlier processes.
    """
    if minutes is None or not minutes <= LONGEST:
        return
    ends = datetime.now(UTC) + timedelta(minutes=max(0.0, minutes - used))
    write_record(
        directory / RUN,
        read_record(directory / RUN) | {"minutes": minutes, "ends": ends.isoformat(timespec="seconds")},
    )


def read_launch(directory: str | os.PathLike[str], recipe: str) -> dict[str, Any]:
    """The settings a run of this recipe was started with. Raises UsageError if not a run of this recipe."""
    path = Path(directory) / RUN
    if not path.is_file():
        raise UsageError(f"{directory} is not a run directory: {RUN} is missing", fix="name its --output-dir")
    record = read_record(path)
    if record.get("recipe") != recipe or not isinstance(record.get("config"), dict):
        raise UsageError(f"{path} is from {record.get('recipe') or 'another program'}, not {recipe}")
    return dict(record["config"])


def settings_of(kind: type[Any], recorded: Mapping[str, Any]) -> Any:
    """Recorded settings as their dataclass: lists become tuples, unknown names are skipped."""
    names = kind.__dataclass_fields__
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in recorded.items()}
    return kind(**{name: value for name, value in plain.items() if name in names})


def write_result(directory: Path, record: Mapping[str, Any]) -> None:
    """Write result.json, with non-finite numbers as null."""
    write_record(directory / RESULT, {"version": VERSION} | _plain(dict(record)))


def read_record(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} for other JSON. Raises UsageError if unreadable."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}", fix="move it away, or use another --output-dir") from error
    return record if isinstance(record, dict) else {}


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record atomically."""
    aside = path.with_name(path.name + ".new")
    aside.write_text(json.dumps(record, indent=1, ensure_ascii=False), encoding="utf-8")
    aside.replace(path)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
