"""Whether a run is finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stayfinite.recipes.running.records import RESULT


def finished_result(directory: Path, steps: int) -> dict[str, Any] | None:
    """The result of a run that has taken all its steps, else None."""
    try:
        record = json.loads((directory / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and int(record.get("steps") or 0) >= steps else None
