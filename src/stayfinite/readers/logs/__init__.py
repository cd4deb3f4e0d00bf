"""Read logs of any training framework into ``RunSeries``. The format is detected, and memory is bounded."""

from __future__ import annotations

from stayfinite.readers.logs.opening import LogReader, UnreadableLog, read_log

__all__ = ["LogReader", "UnreadableLog", "read_log"]
