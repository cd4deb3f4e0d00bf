"""Logs of any training framework -> ``RunSeries``: sniffed, streamed, bounded."""

from __future__ import annotations

from stayfinite.readers.logs.opening import LogReader, UnreadableLog, read_log

__all__ = ["LogReader", "UnreadableLog", "read_log"]
