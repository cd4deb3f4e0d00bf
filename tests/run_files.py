"""Reading what a guarded run wrote, and waiting for what a thread of it writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Every line of a file of lines; each must be whole."""
    text = path.read_text(encoding="utf-8")
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def events_of(run: Path) -> list[str]:
    """What happened in a run, in order."""
    return [event["event"] for event in lines_of(run / "events.jsonl")]


def eventually(condition: Callable[[], object], patience: float = 100.0) -> None:
    """Wait until something is so, however slow the machine is; fail where it never is."""
    until = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < until, "it never was so"
        time.sleep(0.02)
