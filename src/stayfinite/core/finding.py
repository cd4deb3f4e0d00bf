"""A rule that fired: the same shape in every command, file and message."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One known way in which training fails, recognised here."""

    code: str
    """The rule's code, `SF202`."""

    cause: str
    """The rule's slug, `lr-zero`."""

    severity: Severity
    """`error` and `warning` make a run sick; `info` does not."""

    confidence: float
    """How likely this is the cause, 0 to 1."""

    where: str
    """The place it was seen: `step 120`, `train.log:17`."""

    title: str
    """One sentence."""

    evidence: tuple[str, ...]
    """What was seen, line by line."""

    fix: str
    """What to do."""

    def to_json(self) -> dict[str, Any]:
        """As plain data, in the order of the fields."""
        return asdict(self) | {"evidence": list(self.evidence)}
