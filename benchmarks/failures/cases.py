"""What a case is, whatever its part; what a tool answers."""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("programs", "logs", "steps")
SPLITS = ("unseen", "known")
"""The honest one first."""

OWN = "Apache-2.0"
"""Programs, steps and all labels were written for this benchmark."""
QUOTED = "figures, messages and code as reported in its source, sentences in our words; label Apache-2.0"
OURS = "written for this benchmark"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One labeled case."""

    part: str
    split: str
    name: str
    causes: tuple[str, ...]
    """Right answers, as slugs of docs/rules; none for a healthy case."""
    source: str = OURS
    author: str = ""
    licence: str = OWN

    @property
    def healthy(self) -> bool:
        """Whether a tool has to stay quiet."""
        return not self.causes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a tool said of a case."""

    alarmed: bool
    first: tuple[str, ...] = ()
    """The cause it puts first. Several where one message stands for several: naming.py says which."""
    others: tuple[str, ...] = ()
    """The causes after it, in order."""
    words: str = ""
    """What it said, cut short."""
    fixed: bool = False
    """Whether it wrote a fix and showed that the fault is gone with it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """An answer, and what it took."""

    case: Case
    tool: str
    answer: Answer
    seconds: float = 0.0
    """Processor time."""
    error: str = ""
    """Why the tool gave no answer."""

    @property
    def right(self) -> bool:
        """Whether the first cause is one of the right ones."""
        return bool(set(self.answer.first) & set(self.case.causes))

    @property
    def among(self) -> bool:
        """Whether a right cause is among the first three."""
        return self.right or bool(set(self.answer.others[:2]) & set(self.case.causes))

    @property
    def mark(self) -> str:
        """One word."""
        if self.error:
            return "failed"
        if self.case.healthy:
            return "ALARM" if self.answer.alarmed else "quiet"
        return "right" if self.right else "found" if self.answer.alarmed else "MISSED"
