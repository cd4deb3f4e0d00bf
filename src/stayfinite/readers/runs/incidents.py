"""Incidents of a run directory as plain data, with their autopsies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

MOST = 16
LARGEST = 8 << 20
"""Bytes; larger files are not ours."""

_NUMBERED = re.compile(r"\d{4,12}")


def read_incidents(directory: Path) -> list[dict[str, Any]]:
    """Each incident with its name, incident.json and autopsy.json, oldest first."""
    try:
        found = [path for path in directory.iterdir() if _NUMBERED.fullmatch(path.name) and path.is_dir()]
    except OSError:
        return []
    incidents = []
    for path in sorted(found, key=lambda path: int(path.name))[:MOST]:
        record = read_object(path / "incident.json")
        if record is not None:
            incidents.append({"name": path.name, "record": record, "autopsy": read_object(path / "autopsy.json")})
    return incidents


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is none."""
    try:
        if path.stat().st_size > LARGEST:
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
