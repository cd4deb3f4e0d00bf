"""Scores that somebody tells of: `train accuracy around 0.001`, `expected from the paper: 33 dB`, `15 instead of 33`."""

from __future__ import annotations

import re

_NUMBER = r"(\d+(?:\.\d+)?)"
_ROUGHLY = r"(?:around|about|approx\w*|only|just|below|under|at most|~|\u2248|stuck at|stays? at|remains? at|still)"
_TOLD = re.compile(
    rf"\b(acc(?:uracy)?|psnr|bleu|f1|m?ap(?:50)?|m?iou|dice|recall|precision)\b[^\n;.\d]{{0,25}}?{_ROUGHLY}\W{{0,3}}{_NUMBER}",
    re.IGNORECASE,
)
_HOPED_FOR = re.compile(
    rf"\bexpected\b(?: (?:\w+ ){{0,4}}\w+)?\s?[:=~]\s?~?-?{_NUMBER}|\binstead of (?:the )?(?:\w+ ){{0,2}}~?{_NUMBER}|"
    rf"\b(?:should|ought to|supposed to) (?:be|reach|get|have been|have reached) (?:\w+ ){{0,2}}~?{_NUMBER}\b(?! (?:or|and)\b)",
    re.IGNORECASE,
)
_ERROR = re.compile(r"\w*(?:Error|Exception|Warning)\b")
NO_PICTURE = 16.0
"""Decibels: below this nothing of a picture is to be seen."""
NOTHING = 0.02
"""A score of this and less, of 1, is one that a guess has."""
GUESSES = (0.1, 10.0)
"""Accuracies of a guess among ten; a coin's half may be a hard task."""


def tells_low_score(text: str) -> bool:
    """Whether a score is told, roughly, that no trained model has."""
    for name, number in _TOLD.findall(text):
        value = float(number)
        if name.lower() == "psnr":
            if value <= NO_PICTURE:
                return True
        elif value <= NOTHING or (name.lower().startswith("acc") and value in GUESSES):
            return True
    return False


def tells_what_was_hoped_for(text: str) -> bool:
    """Whether a number is told that should have come out, and by that did not."""
    return _ERROR.search(text) is None and _HOPED_FOR.search(text) is not None
