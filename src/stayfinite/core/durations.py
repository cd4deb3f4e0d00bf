"""Format durations for people."""

from __future__ import annotations

import math


def in_words(seconds: float) -> str:
    """`8 s`, `2 min 5 s`, `3 h 20 min`, `2 d 4 h`; empty if negative or not finite."""
    if not math.isfinite(seconds) or seconds < 0:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{round(whole / 60)} min"
    minutes = round(whole / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24} h"
