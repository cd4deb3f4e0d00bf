"""Whether a run is over already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stayfinite.recipes.running.records import RESULT


def finished_result(directory: Path, steps: int) -> dict[str, Any] | None:
    """The recorded result of a run that has taken all its steps; None where there is something left to do."""
    try:
        record = json.loads((directory / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and int(record.get("steps") or 0) >= steps else None
