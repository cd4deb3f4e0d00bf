"""Answers in their tags: written, found again, and held against the right one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

OPEN, CLOSE = "<answer>", "</answer>"
TOLERANCE = 0.05
"""A number counts as right within this relative error."""
_TAGGED = re.compile(re.escape(OPEN) + r"(.*?)" + re.escape(CLOSE), re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")


def wrapped(answer: str) -> str:
    """The answer in its tags."""
    return f"{OPEN}{answer}{CLOSE}"


def bare(answer: str) -> str:
    """An answer without the tags that it may have been given already."""
    whole = _TAGGED.fullmatch(answer.strip())
    return whole[1].strip() if whole else answer


def found_in(text: str) -> str | None:
    """What stands in the last complete pair of tags; None where there is none, or nothing in it."""
    tagged = _TAGGED.findall(text)
    inside = str(tagged[-1]).strip() if tagged else ""
    return inside or None


def number_in(text: str) -> float | None:
    """The number that a text is: `1,200`, `-3.5`, `4e3`; None where it is none, or not finite."""
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped):
        return None
    value = float(stripped.replace(",", ""))
    return value if math.isfinite(value) else None


def parsed(text: str, *, numeric: bool) -> str | None:
    """The answer that a generated text gives: in its tags, and a number where one is asked for."""
    inside = found_in(text)
    if inside is None or (numeric and number_in(inside) is None):
        return None
    return inside


def is_right(given: str | None, right: str) -> bool:
    """Within the tolerance for numbers, equal but for spaces and case for texts; no answer is never right."""
    if given is None:
        return False
    expected = number_in(right)
    if expected is None:
        return " ".join(given.casefold().split()) == " ".join(right.casefold().split())
    value = number_in(given)
    return value is not None and abs(value - expected) <= (TOLERANCE + 1e-9) * abs(expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How many answers were right, and how many there were."""

    accuracy: float
    """Share of the questions that were answered rightly; one without an answer is a miss."""
    answer_rate: float
    """Share of the questions with an answer that can be read."""
    questions: int

    def __str__(self) -> str:
        return (
            f"accuracy {self.accuracy:.3f}, answer rate {self.answer_rate:.3f} "
            f"({self.questions:,} question{'' if self.questions == 1 else 's'})"
        )


def score(texts: Sequence[str], rights: Sequence[str]) -> Scores:
    """Hold generated texts against the right answers."""
    if not rights:
        return Scores(accuracy=float("nan"), answer_rate=float("nan"), questions=0)
    given = [parsed(text, numeric=number_in(right) is not None) for text, right in zip(texts, rights, strict=True)]
    right = sum(is_right(one, other) for one, other in zip(given, rights, strict=True))
    return Scores(
        accuracy=right / len(rights),
        answer_rate=sum(one is not None for one in given) / len(rights),
        questions=len(rights),
    )
