"""The result of an inspection: banner, check list, findings and verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stayfinite.core.finding import Finding
from stayfinite.core.html import panel, table, text
from stayfinite.core.series import Message, RunSeries
from stayfinite.core.settings import Settings
from stayfinite.inspection.notes import Edit, Line, Notes, Table, ruled
from stayfinite.rules.facts import Facts
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import all_rules, rule_of

SURE = 0.3  # findings below this confidence are guesses and are dropped before a launch

SEEN = 0.2
"""Like `SURE`, for causes that a probe looked for: another explanation lowers a proof to this."""

Verdict = Literal["healthy", "sick", "unknown"]


@dataclass(frozen=True, slots=True)
class Ignored:
    """An ignored finding."""

    finding: Finding
    reason: str
    where: str
    """What ignores it: `train.yaml:3`, or `project file`."""

    def to_json(self) -> dict[str, Any]:
        return {"finding": self.finding.to_json(), "reason": self.reason, "where": self.where}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The result of `stayfinite check` and, in full, of `preflight`."""

    banner: Sequence[tuple[str, str]]
    lines: Sequence[Line]
    findings: Sequence[Finding]
    """Most severe and likely first; infos last."""
    tables: Sequence[Table] = ()
    ignored: Sequence[Ignored] = ()
    """Findings ignored by a comment or the project file; they do not affect the verdict."""
    edits: Sequence[Edit] = ()
    """Setting changes that would fix some of the findings."""

    @property
    def verdict(self) -> Verdict:
        """`sick` with an error or a warning, `unknown` if nothing could be checked."""
        if any(finding.severity != "info" for finding in self.findings):
            return "sick"
        return "healthy" if any(line.status != "skip" for line in self.lines) else "unknown"

    @property
    def exit_code(self) -> int:
        """0 if ready to launch, else 1."""
        return int(self.verdict == "sick")

    def _repr_html_(self) -> str:
        """HTML for notebooks: verdict, findings, then a table of checks."""
        words = {"healthy": "Ready to launch", "sick": "Not ready", "unknown": "Nothing could be checked"}
        tone = {"healthy": "good", "sick": "error", "unknown": "warning"}[self.verdict]
        rows = [(line.status, line.group, line.title, line.seen) for line in self.lines if line.status != "skip"]
        shown = [table(("", "group", "check", "seen"), rows)] if rows else []
        ignored = [f"{each.finding.where}: {each.finding.code} ignored: {each.reason}" for each in self.ignored]
        shown += [f"<b>{text(each.title)}</b>{table(each.columns, each.rows)}" for each in self.tables]
        return (
            panel(words[self.verdict], ignored, tone=tone)
            + "".join(each._repr_html_() for each in self.findings)
            + "".join(shown)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "checks": [line.to_json() for line in self.lines],
            "banner": dict(self.banner),
            "tables": [table.to_json() for table in self.tables],
            "ignored": [each.to_json() for each in self.ignored],
        }


def conclude(notes: Notes, settings: Settings | None = None) -> Inspection:
    """Let the rules judge the observations and the settings, if any."""
    facts = Facts([_as_log(notes.told)] if notes.told else [], settings or Settings(), notes.observed)
    found = [each for each in rank(facts, all_rules()) if each.severity == "info" or _worth_saying(each, notes)]
    proved = {each.cause for each in notes.proved}
    findings = sorted(
        [*notes.proved, *(each for each in found if each.cause not in proved)],
        key=lambda each: (each.severity == "info", -each.confidence),
    )
    return Inspection(
        banner=notes.banner,
        lines=ruled(notes.checks, findings),
        findings=findings,
        tables=tuple(notes.tables),
        edits=tuple(notes.edits),
    )


def _worth_saying(found: Finding, notes: Notes) -> bool:
    """Whether it is more than a guess. A probe's observation is, even if another cause explains part of it."""
    probed = any(name in notes.observed for name in rule_of(found.cause).asks_for)
    return found.confidence >= (SEEN if probed else SURE)


def _as_log(errors: Sequence[str]) -> RunSeries:
    log = RunSeries("error")
    log.messages += [Message(text, "error", line) for line, text in enumerate(errors, start=1)]
    return log
