"""A check list: what was looked at before training, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stayfinite.core.finding import Finding

Status = Literal["pass", "warn", "fail", "note", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. Whether it is right, the rules say."""

    group: str
    """What it belongs to: `Devices`, `Loss`, `Gradients`."""
    title: str
    """What should be so: `model, batch and optimizer state on one device`."""
    causes: tuple[str, ...] = ()
    """Slugs of the rules that judge it: a finding of one of these causes turns the line to warn or fail."""
    seen: str = ""
    """What was seen, with its numbers, in a few words."""
    skipped: str = ""
    """Why it could not be looked at; empty when it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A check with its verdict."""

    status: Status
    group: str
    title: str
    seen: str
    code: str = ""
    """Of the finding that decided it."""
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        names = ("status", "group", "title", "seen", "code", "fix")
        return {name: getattr(self, name) for name in names}


STATUS: dict[str, Status] = {"error": "fail", "warning": "warn", "info": "note"}


def ruled(checks: Sequence[Check], findings: Sequence[Finding]) -> list[Line]:
    """The check list as the findings leave it: each finding once, in a line of its own where no check asked for it."""
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
