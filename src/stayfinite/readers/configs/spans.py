"""Where on a line the name and the value of a setting stand: what a finding points at, and what a fix replaces."""

from __future__ import annotations

import re
from dataclasses import dataclass

_STEPS = re.compile(r"[./]")
_VALUE = re.compile(
    r"""
    "(?:[^"\\]|\\.)*"          # in quotes
    | '(?:[^'\\]|\\.)*'
    | [^\s,;)\]}#"'\\][^\s,;)\]}"'\\]*
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Span:
    """Columns of a line, from 0; the end is one past the last."""

    start: int
    end: int


def spans_of(line: str, name: str) -> tuple[Span, Span] | None:
    """The spans of a setting's key and of its value, found by the last step of its name; None where it is not there.

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
