"""Where probes record observations. The rules judge them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.core.settings import Setting
from stayfinite.inspection.check_list import Check
from stayfinite.rules.facts import Observation


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

    def check(self, group: str, title: str, *causes: str, seen: str = "", skipped: str = "") -> None:
        """Add a check list line that these causes decide."""
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
