"""Findings: the result of a rule, in the same shape in every command, file and message."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from stayfinite.core.html import panel

Severity = Literal["error", "warning", "info"]
SURE = 0.9
"""From this confidence on, a notebook names a cause without its percentage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a file the fix goes; lines and columns count from 1."""

    path: str
    line: int
    column: int
    end_column: int
    """One past the last column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One known way in which training fails, recognized here.

    Examples:
        >>> found = stayfinite.diagnose("train.log", tell=["precision=fp16"]).findings[0]
        >>> found.code, found.cause, found.severity
        ('SF101', 'fp16-overflow', 'error')
    """

    code: str
    """The rule's code, `SF202`."""

    cause: str
    """The rule's slug, `lr-zero`."""

    severity: Severity
    """`error` and `warning` fail a check; `info` does not."""

    confidence: float
    """How likely this is the cause, 0 to 1."""

    where: str
    """Where it was seen: `step 120`, `train.log:17`."""

    title: str
    """One sentence."""

    evidence: tuple[str, ...]
    """What was seen, line by line."""

    fix: str
    """What to do."""

    place: Place | None = None
    """Where the fix goes, if it is in a file that was read."""

    def to_json(self) -> dict[str, Any]:
        """Plain data in field order; `place` is omitted if None."""
        data = asdict(self) | {"evidence": list(self.evidence)}
        if self.place is None:
            del data["place"]
        return data

    def _repr_html_(self) -> str:
        lines = [f"{self.where}: {self.title}" if self.where else self.title, *self.evidence, f"Fix: {self.fix}"]
        sure = "" if self.confidence >= SURE else f" ({self.confidence:.0%})"
        return panel(f"{self.severity} {self.code} {self.cause}{sure}", lines, tone=self.severity)


class Findings(list[Finding]):
    """A list with a readable repr in notebooks and on the prompt, also when empty."""

    def __repr__(self) -> str:
        if not self:
            return "No findings."
        return "\n".join(f"{each.severity} {each.code} {each.cause}: {each.title} Fix: {each.fix}" for each in self)

    def _repr_html_(self) -> str:
        return "".join(each._repr_html_() for each in self) or panel("No findings.", tone="good")
