"""Find out from a run's last events, on any rank, whether training was stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from stayfinite.readers.runs.directory import moment

EVENT_FILES = "events*.jsonl"
TAIL = 1 << 16
"""Bytes read from the end of a file: a stop is among the last lines."""


def stopped_since(directory: Path, since: float) -> dict[str, Any] | None:
    """The newest `stopped` event of any rank since a time in seconds since 1970; None if there is none.

    Every rank that stops writes one, so losing some files hides nothing. The content is not trusted.
    """
    found: tuple[float, dict[str, Any]] | None = None
    try:
        files = sorted(directory.glob(EVENT_FILES))
    except OSError:
        return None
    for path in files:
        for line in _last_lines(path):
            event = _stopped(line)
            when = moment(str(event.get("time"))) if event else None
            if event and when is not None and when >= since and (found is None or when > found[0]):
                found = (when, event)
    return None if found is None else found[1]


def _stopped(line: bytes) -> dict[str, Any]:
    if b'"stopped"' not in line:
        return {}
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) and event.get("event") == "stopped" else {}


def _last_lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            return file.read(TAIL).splitlines()
    except OSError:
        return []
