"""Where probes record observations, and the check list that rules make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from stayfinite.core.finding import Finding
from stayfinite.core.settings import Setting
from stayfinite.rules.facts import Observation
from stayfinite.rules.plans import Remark

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
        return asdict(self)


CONTRADICTION = "config-contradiction"
STATUS: dict[str, Status] = {"error": "fail", "warning": "warn", "info": "note"}


def ruled(checks: Sequence[Check], findings: Sequence[Finding]) -> list[Line]:
    """Apply findings to the checks. Each finding appears once; one without a check gets its own line."""
    lines, placed = [], set()
    for check in checks:
        concerned = [finding for finding in findings if finding.cause in check.causes]
        deciding = next((finding for finding in concerned if finding.cause not in placed), None)
        if deciding is not None:
            placed.add(deciding.cause)
            lines.append(_decided(check.group, check.title, check.seen, deciding))
            continue
        skipped = f"see above ({concerned[0].code})" if concerned else check.skipped
        status: Status = "skip" if skipped else "pass"
        lines.append(Line(status=status, group=check.group, title=check.title, seen=skipped or check.seen))
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


@dataclass(slots=True)
class Notes:
    """Observations of one inspection."""

    observed: dict[str, Observation] = field(default_factory=dict)
    """Facts by the names that rules declare in `observes`."""
    checks: list[Check] = field(default_factory=list)
    """Check list lines, in display order."""
    banner: list[tuple[str, str]] = field(default_factory=list)
    """Header lines: `("device", "cuda:0, NVIDIA A100")`."""
    tables: list[Table] = field(default_factory=list)
    """Tables: parameter groups, memory, lengths."""

    edits: list[Edit] = field(default_factory=list)
    """Setting changes that would fix a problem."""
    told: list[str] = field(default_factory=list)
    """Error texts as they would appear in a log, for rules that match them."""
    proved: list[Finding] = field(default_factory=list)
    """Findings proved by an autopsy; rules do not weigh them again."""

    def saw(self, name: str, value: Any, where: str = "") -> None:
        """Record a fact for the rules."""
        self.observed[name] = Observation(value, where)

    def remark(self, name: str, *remarks: Remark) -> None:
        """Add remarks, if any, to those that rules find under this name."""
        if remarks:
            before = self.observed.get(name)
            self.saw(name, [*(before.value if before is not None else []), *remarks])

    def contradict(self, text: str, where: str, fix: str = "") -> str:
        """Record contradictory settings; return the cause that judges them, for the check list."""
        self.remark("plan.contradictions", (text, where, fix))
        return CONTRADICTION

    def check(
        self, group: str, title: str, *causes: str, seen: str = "", skipped: str = "", otherwise: str = ""
    ) -> None:
        """Add a check list line that these causes decide; ``otherwise`` says why it was skipped if nothing was seen."""
        skipped = skipped or ("" if seen else otherwise)
        self.checks.append(Check(group=group, title=title, causes=causes, seen=seen, skipped=skipped))

    def heading(self, name: str, text: str) -> None:
        """Add a line to the banner."""
        self.banner.append((name, text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of one setting in a file that would fix a cause; a second check must confirm it."""

    cause: str
    setting: Setting
    value: Any = None
    """The new value, unless the name changes."""
    name: str = ""
    """The new last part of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}
