"""Numbers as people write them: `7*10^-4`, `3·10⁻⁴`, `7*e-4` and `0,0005` become what `float` takes."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex

_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻\u2212\u2013", "0123456789---")
_SIGN = r"[-\u2212\u2013]"
"""A hyphen, a minus sign or a dash."""
_TIMES = r"(?<![\w.])(?P<factor>\d+(?:\.\d+)?)\s?[*x\u00d7·⋅]\s?"
_POWERS = (
    lazy_regex(rf"(?:{_TIMES}|(?<![\w.]))10\s?(?:\^|\*\*)\s?[({{]?\s?(?P<power>{_SIGN}?\d{{1,2}})(?![\d.])[)}}]?"),
    lazy_regex(rf"(?:{_TIMES}|(?<![\w.]))10(?P<power>[⁻⁰¹²³⁴-⁹]{{1,3}})"),
    lazy_regex(rf"{_TIMES}10(?P<power>{_SIGN}\d)(?![\d.-])"),
    lazy_regex(rf"{_TIMES}1?[eE](?P<power>{_SIGN}\d{{1,2}})(?!\w)"),
    lazy_regex(r"(?<![\w.])(?P<factor>\d+(?:\.\d+)?)[eE](?P<power>[\u2212\u2013]\d{1,2})(?!\w)"),
)
_COMMA = lazy_regex(r"(?<![\w.,])0,(0\d*[1-9])(?!\w|[,.]\d)")


def plain_numbers(text: str) -> str:
    """The text with its powers of ten and decimal commas as `float` takes them.

    >>> plain_numbers("lr 7*10^-4, decay 3·10⁻⁴, eps = 10**-8, 7*e-4, 0,0005")
    'lr 7e-4, decay 3e-4, eps = 1e-8, 7e-4, 0.0005'
    >>> plain_numbers("8 x 10 images, GPUs 0,1,2 and 10-12 epochs")
    '8 x 10 images, GPUs 0,1,2 and 10-12 epochs'
    """
    if "10" in text or "e" in text.lower():
        for power in _POWERS:
            text = power.sub(_as_float_takes_it, text)
    return _COMMA.sub(r"0.\1", text) if "0,0" in text else text


def _as_float_takes_it(found: re.Match[str]) -> str:
    return f"{found['factor'] or 1}e{found['power'].translate(_RAISED)}"
