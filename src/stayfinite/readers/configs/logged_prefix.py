"""Prefixes that loggers, launchers and terminals add to a line."""

from __future__ import annotations

import re

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(
    r"^\s*(?:"
    r"\[?(?:default)?\d*\]?:\s?(?=\s*\[)|\[rank\s?\d+\]:?\s*|\[\d+\]\s*:\s*|"
    r"\[\d{4}-\d\d-\d\d[^\]]*\]\s*|\d{2,4}[-/]\d\d[-/]\d{2,4}[ T][\d:.,]+\s*|\d\d:\d\d:\d\d\s+|"
    r"\[?(?:INFO|WARNING|DEBUG|ERROR)\b[^\]\s]*\]?:?\s*|\[[\w./\-]+\.py:\d+[^\]]*\]\s*|>>\s*|\|\s+|"
    r"-\s+(?:INFO|WARNING)\s+-\s*|[\w.]+ - (?:INFO|WARNING) - |(?:INFO|WARNING):[\w.]*:\s*|__main__ - )"
)


def cleaned(text: str) -> str:
    """Remove colors and the prefixes of loggers and ranks; keep the indentation after them."""
    text = _COLOURS.sub("", text).rstrip() if "\x1b" in text else text.rstrip()
    for _ in range(6):
        match = _PREFIX.match(text)
        if match is None or match.end() == 0:
            break
        text = text[match.end() :]
    return text
