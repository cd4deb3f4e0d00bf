"""Parse the text of a value: `True (default)` is True, `[0.9, 0.95]` a list, `'5'` stays a string."""

from __future__ import annotations

import re
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.literals import parse_literal
from stayfinite.readers.configs.scalars import NotPlain, number, strict_scalar
from stayfinite.readers.configs.tree import plain_data

_REMARK = lazy_regex(r"[(\[][^()\[\]]*[)\]]$|(?<=\s)#.*$|(?<=\s)//.*$")
_MOST_TEXT = 4_000  # longer texts are not hand-written values


def value_in_text(text: str) -> Any:
    """Parse a hand-written value, with quotes, brackets and a trailing remark.

    >>> value_in_text("True (default)"), value_in_text("[0.9, 0.95]"), value_in_text("'5'"), value_in_text("4x V100")
    (True, [0.9, 0.95], '5', '4x V100')
    """
    text = text.strip()
    if len(text) > _MOST_TEXT:
        return text
    whole = _whole(text)
    if whole is not NotPlain:
        return whole
    without = _REMARK.sub("", text).rstrip(" ,;")
    if without != text:
        whole = _whole(without)
        if whole is not NotPlain:
            return whole
    for head in (text.partition(" (")[0] if text.endswith(")") else text, re.split(r"[,;(]\s", text, maxsplit=1)[0]):
        if head != text:
            try:
                return strict_scalar(head.strip())
            except NotPlain:
                pass
    return text


def _whole(text: str) -> Any:
    if not text:
        return ""
    try:
        return strict_scalar(text)
    except NotPlain:
        pass
    first, last = text[0], text[-1]
    if first in "'\"" and last == first and len(text) > 1 and first not in text[1:-1]:
        return text[1:-1]
    if (first, last) in {("[", "]"), ("{", "}"), ("(", ")")} and " for " not in text:
        parsed = parse_literal(text)
        if parsed is not None and parsed.whole and not text[parsed.end :].strip():
            return plain_data(parsed.node)
    if "," in text and len(text) < 200:
        parts = [number(part.strip()) for part in text.split(",")]
        if len(parts) > 1 and all(part is not None for part in parts):
            return parts
    return NotPlain
