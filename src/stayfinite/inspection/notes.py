"""Where probes write down what they see. They judge nothing; the rules do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.core.settings import Setting
from stayfinite.inspection.check_list import Check
from stayfinite.rules.facts import Observation


@dataclass(slots=True)
class Notes:
    """What the probes of one inspection have seen so far."""

    observed: dict[str, Observation] = field(default_factory=dict)
    """Facts by the names that rules declare in `observes`."""
    checks: list[Check] = field(default_factory=list)
    """The lines of the check list, in the order in which people read them."""
    banner: list[tuple[str, str]] = field(default_factory=list)
    """What stands at the top: `("device", "cuda:0, NVIDIA A100")`."""
    tables: list[Table] = field(default_factory=list)
    """What is better shown as a table: parameter groups, memory, lengths."""

    edits: list[Edit] = field(default_factory=list)
    """Changes of single settings that would mend what was seen."""
    told: list[str] = field(default_factory=list)
    """Errors, as they would stand in a log: the rules know their words."""
    proved: list[Finding] = field(default_factory=list)
    """What an autopsy has shown; no rule has to weigh it again."""

    def saw(self, name: str, value: Any, where: str = "") -> None:
        """Note a fact for the rules."""
        self.observed[name] = Observation(value, where)

    def check(self, group: str, title: str, *causes: str, seen: str = "", skipped: str = "") -> None:
        """Add a line to the check list, which these causes decide."""
        self.checks.append(Check(group=group, title=title, causes=causes, seen=seen, skipped=skipped))

    def heading(self, name: str, text: str) -> None:
        """Add a line to the banner."""
        self.banner.append((name, text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of one setting in a file, which would mend a cause. Whether it does, a second look decides."""

    cause: str
    setting: Setting
    value: Any = None
    """The new value, unless the name is what changes."""
    name: str = ""
    """The new last step of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}
