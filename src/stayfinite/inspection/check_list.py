"""A check list: what was checked before training, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stayfinite.core.finding import Finding

Status = Literal["pass", "warn", "fail", "note", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check. The rules decide its result."""

    group: str
    """Its heading: `Devices`, `Loss`, `Gradients`."""
    title: str
    """The expected state: `model, batch and optimizer state on one device`."""
    causes: tuple[str, ...] = ()
    """Slugs of the rules that judge it: a finding of one of them turns the line to warn or fail."""
    seen: str = ""
    """The observation, with numbers."""
    skipped: str = ""
    """Why it was skipped; empty if it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A check with its result."""

    status: Status
    group: str
    title: str
    seen: str
    code: str = ""
    """Code of the deciding finding."""
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        names = ("status", "group", "title", "seen", "code", "fix")
        return {name: getattr(self, name) for name in names}


STATUS: dict[str, Status] = {"error": "fail", "warning": "warn", "info": "note"}


def ruled(checks: Sequence[Check], findings: Sequence[Finding]) -> list[Line]:
    """Apply findings to the checks. Each finding appears once; one without a check gets its own line."""
    lines, placed = [], set()
    for check in checks:
        concerned = [finding for finding in findings if finding.cause in check.causes]
        deciding = next((finding for finding in concerned if finding.cause not in placed), None)
        if deciding is None and concerned:
            seen = f"see above ({concerned[0].code})"
            lines.append(Line(status="skip", group=check.group, title=check.title, seen=seen))
        elif deciding is not None:
            placed.add(deciding.cause)
            lines.append(_decided(check.group, check.title, check.seen, deciding))
        elif check.skipped:
            lines.append(Line(status="skip", group=check.group, title=check.title, seen=check.skipped))
        else:
            lines.append(Line(status="pass", group=check.group, title=check.title, seen=check.seen))
    homeless = [finding for finding in findings if finding.cause not in placed]
    lines += [_decided("Also", finding.title.rstrip("."), "", finding) for finding in homeless]
    return lines


def _decided(group: str, title: str, seen: str, finding: Finding) -> Line:
    return Line(
        status=STATUS[finding.severity],
        group=group,
        title=title,
        seen="; ".join(finding.evidence) or seen,
        code=finding.code,
        fix=finding.fix,
    )
