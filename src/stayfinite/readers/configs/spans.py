"""Locate the name and value of a setting on its line, for findings and fixes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex

_STEPS = lazy_regex(r"[./]")
_VALUE = lazy_regex(
    r"""
    "(?:[^"\\]|\\.)*"          # in quotes
    | '(?:[^'\\]|\\.)*'
    | [^\s,;)\]}#"'\\][^\s,;)\]}"'\\]*
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Span:
    """Columns of a line, from 0, end exclusive."""

    start: int
    end: int


def spans_of(line: str, name: str) -> tuple[Span, Span] | None:
    """The spans of a setting's key and value, found by the last part of its name; None if not found.

    >>> spans_of("  lr: 1e-4  # peak", "optimizer.lr")
    (Span(start=2, end=4), Span(start=6, end=10))
    """
    step = re.escape(_STEPS.split(name.strip().lstrip("-"))[-1]).replace("_", "[_-]")
    key = re.search(rf"(?<![\w-])(?:--)?(?:\\?[\"'])?(?P<key>{step})(?![\w-])", line)
    if key is None:
        return None
    named = Span(*key.span("key"))
    between = re.compile(r"""(?:\\?["'])?(?:\s*[:=]\s*|\s+)""").match(line, named.end)
    value = _VALUE.match(line, between.end()) if between else None
    return named, Span(*value.span()) if value else named
