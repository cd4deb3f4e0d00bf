"""How logs write a number: `2.5`, `9.150E-06`, `1,234.5`, `nan`, `NaN`, `-inf`, `Infinity`."""

from __future__ import annotations

NUMBER = (
    r"(?:[-+]?(?:\d{1,3}(?:,\d{3})++(?:\.\d++)?(?![\d,]*\d)|(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?+)"
    r"(?:(?=(?:ms|s|m|h|x|it|K|k|M|MB|G|GB|GF|GiB|MiB|TFLOPs)(?![A-Za-z\d_]))|(?![\w]|\.\d|[.-][A-Za-z]))"
    r"|[-+]?(?i:nan|infinity|inf)(?!\w|[.-]\w))"
)
"""A regular expression without groups. A number ends at a word's end or before a unit: `819.72ms`, `14.12%`; there is
none in `llama-7b` and `1.2.3`."""


def number(text: str) -> float:
    """The value; ``ValueError`` where it is none."""
    try:
        return float(text)
    except ValueError:
        return float(text.replace(",", ""))
