"""Generated text that a log shows: one token or one phrase again and again, or nothing but special tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stayfinite.core.lazy_regex import lazy_regex

_SHOWN = lazy_regex(
    r"^\W{0,3}(?:\w{1,12} ){0,2}(?:outputs?|generat(?:ed|ions?)(?: text)?|predict\w*|preds?|hyp\w*|responses?|answers?|"
    r"completions?|translations?|decoded|samples?|captions?|summary)(?: ?\(?\d*\)?)\W{0,2}[:=>]+\s*(?P<text>\S.*)$",
    re.IGNORECASE,
)
_AGAIN = lazy_regex(r"(?<!\S)(?=\S*[^\W\d_])(\S(?:.{0,40}?\S)?)(?:\s+\1){6,}(?!\S)")
"""A word or a phrase seven times in a row."""
_ALONE = lazy_regex(r"(?<!\S)(?=\S*[^\W\d_])(\S{1,40})(?:\s+\1){9,}(?!\S)")
"""A word ten times, whoever says it."""
_CHARACTER = lazy_regex(r"([^\w\s\-=.#*~+/\\|<>])\1{15,}")
_SPECIAL = lazy_regex(
    r"<\|?/?(?:s|pad|unk|eos|bos|mask|endoftext|extra_id_\d+)\|?>|\[(?:PAD|UNK|MASK|SEP|CLS)\]", re.IGNORECASE
)
OUTGROWN = 5
"""So many answers without repetition show that it was learned."""
OPENING = 3
"""The first words of a prompt, which every answer to it begins with."""
LEAST = 3
"""Special tokens that are no beginning and end."""


def shown_repetition(lines: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """The last ``(where, text)`` that repeats itself, unless many answers after it do not: an early one may."""
    last: tuple[str, str] | None = None
    after, opening = 0, [""]
    for where, text in lines:
        if shows_repetition(text):
            last, after, opening = (where, text.strip()), 0, text.split()[:OPENING]
        elif last is not None and (_SHOWN.match(text) or text.split()[:OPENING] == opening):
            after += 1
    return last if after < OUTGROWN else None


def shows_repetition(text: str) -> bool:
    """Whether a line shows a text that no trained model writes."""
    found = _SHOWN.match(text)
    if found is None:
        return _ALONE.search(text) is not None
    told = found["text"]
    if _AGAIN.search(told) or _CHARACTER.search(told):
        return True
    return len(_SPECIAL.findall(told)) >= LEAST and not re.search(r"\w", _SPECIAL.sub("", told))
