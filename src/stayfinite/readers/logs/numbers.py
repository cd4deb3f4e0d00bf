"""Number syntax in logs: `2.5`, `9.150E-06`, `1,234.5`, `nan`, `-inf`, `Infinity`, `nan.0`, `-nan(ind)`, `.nan`."""

from __future__ import annotations

import math
import re

from stayfinite.core.lazy_regex import lazy_regex

NUMBER = (
    r"(?:[-+]?1\.\#(?:QNAN|SNAN|IND|INF)0*+"
    r"|[-+]?(?:\d{1,3}(?:,\d{3})++(?:\.\d++)?(?![\d,]*\d)|(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?+)"
    r"(?:(?=(?:ms|s|m|h|x|it|K|k|M|MB|G|GB|GF|GiB|MiB|TFLOPs)(?![A-Za-z\d_]))|(?![\w]|\.\d|[.-][A-Za-z]))"
    r"|[-+]?\.?(?i:nan|infinity|inf)(?:16|32|64)?+(?:\.0++|\((?:s?nan|ind)\))?+(?!\w|[.-]\w))"
)
"""A regular expression without groups. A number ends at a word boundary or before a unit (`819.72ms`, `14.12%`), so
`llama-7b` and `1.2.3` do not match. Lightning writes `nan.0`; C libraries have their own spellings."""

_ODD = lazy_regex(
    r"([-+]?)\.?(?:(nan|inf(?:inity)?)(?:16|32|64|\.0+|\((?:s?nan|ind)\))?|1\.#(?:(qnan|snan|ind)|inf)0*)",
    re.IGNORECASE,
)


def number(text: str) -> float:
    """Parse a number. Raises ``ValueError`` if the text is not one."""
    try:
        return float(text)
    except ValueError:
        odd = _ODD.fullmatch(text)
        if odd is None:
            return float(text.replace(",", ""))
    if odd[3] or (odd[2] or "").lower() == "nan":
        return math.nan
    return -math.inf if odd[1] == "-" else math.inf
