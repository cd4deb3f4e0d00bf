"""A finding and how it is known: proved by a re-run, seen in the running program, or read from text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stayfinite.core.finding import Finding, Severity
from stayfinite.doctor.frames import short
from stayfinite.rules.registry import rule_of

KnownBy = Literal["proved by re-run", "seen in the running program", "read from text"]
PROVED: KnownBy = "proved by re-run"
SEEN: KnownBy = "seen in the running program"
READ: KnownBy = "read from text"
_ORDER = {PROVED: 0, SEEN: 1, READ: 2}


@dataclass(frozen=True, slots=True)
class Told:
    """A finding of the doctor."""

    finding: Finding
    known_by: KnownBy
    place: tuple[str, int] = ("", 0)
    """File and line it refers to."""
    weight: float = 1.0
    """Higher explains more; compared first when ranking."""

    @property
    def loud(self) -> bool:
        """Whether it makes the training sick."""
        return self.finding.severity != "info"

    def to_json(self) -> dict[str, Any]:
        return self.finding.to_json() | {"known_by": self.known_by, "place": list(self.place)}


def told(
    cause: str,
    evidence: Sequence[str],
    *,
    known_by: KnownBy = SEEN,
    place: tuple[str, int] = ("", 0),
    where: str = "",
    fix: str = "",
    title: str = "",
    confidence: float = 0.95,
    severity: Severity | None = None,
    weight: float = 1.0,
) -> Told:
    """A finding with its rule's title and fix and its place in words, unless overridden."""
    rule = rule_of(cause)
    finding = Finding(
        code=rule.code,
        cause=rule.slug,
        severity=severity or rule.severity,
        confidence=confidence,
        where=where or short(place),
        title=title or rule.title,
        evidence=tuple(evidence),
        fix=fix or rule.fix,
    )
    return Told(finding, known_by, place, weight)


def ranked(findings: Iterable[Told]) -> list[Told]:
    """The best-known finding of each cause, in order."""
    best: dict[str, Told] = {}
    for each in findings:
        if _key(each) < _key(best.setdefault(each.finding.cause, each)):
            best[each.finding.cause] = each
    return sorted(best.values(), key=_key)


def _key(each: Told) -> tuple[Any, ...]:
    # A heavy finding that was only seen may explain one that a re-run proved.
    return (not each.loud, -each.weight, _ORDER[each.known_by], -each.finding.confidence)
