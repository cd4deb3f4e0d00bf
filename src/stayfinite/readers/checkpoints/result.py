"""What a scan came to, as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stayfinite.core.finding import Finding, Severity
from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts, Place, TensorValues

Verdict = Literal["healthy", "sick", "unknown"]
SHOWN = 6
"""Lines of evidence of one kind."""

LONGEST = 400
"""Characters of a line of evidence: names come from files."""

_CAUSES = {
    "SF701": "resume-state-missing", "SF702": "poisoned-checkpoint", "SF703": "corrupt-checkpoint",
    "SF704": "architecture-mismatch", "SF705": "adapter-overwritten",
}  # fmt: skip

State = Literal["good", "poisoned", "damaged", "suspect", "unknown"]


def counted(count: int, noun: str) -> str:
    """A number and its noun: ``1 tensor``, ``2 tensors``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(lines: list[str]) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    more = len(lines) - SHOWN
    lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]} …" for line in lines]
    return (*lines[:SHOWN], *([f"… and {more} more"] if more > 0 else []))


@dataclass(kw_only=True, slots=True)
class Scanned:
    """A checkpoint, the values of its tensors, and what is to be said of it."""

    facts: CheckpointFacts
    values: list[list[TensorValues | None]] | None = None
    """For each file, in the order of its places; None where numbers were not looked at."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def state(self) -> State:
        """The worst that is known of it."""
        grave = {(finding.code, finding.severity) for finding in self.findings}
        if ("SF702", "error") in grave:
            return "poisoned"
        if ("SF703", "error") in grave:
            return "damaged"
        foreign = any(trouble.kind == "foreign" for file in self.facts.files for trouble in file.troubles)
        if self.values is None or foreign or ("SF703", "warning") in grave:
            return "unknown"
        return "suspect" if any(severity != "info" for _, severity in grave) else "good"

    @property
    def not_finite(self) -> int:
        """How many numbers in it are not finite, wherever they are."""
        return sum(each.bad for file in self.values or [] for each in file if each is not None)

    @property
    def name(self) -> str:
        """How it is called in a sentence."""
        return self.facts.path.name if self.facts.step is None else f"the checkpoint of step {self.facts.step}"

    @property
    def training(self) -> tuple[Path, str]:
        """What tells checkpoints of one training: where they lie and, where no step tells more, how they are named."""
        manner = "step" if self.facts.step is not None else re.sub(r"\d+", "0", self.facts.path.name)
        return self.facts.path.absolute().parent, manner

    def finding(
        self, code: str, severity: Severity, confidence: float, *, title: str, evidence: tuple[str, ...], fix: str
    ) -> Finding:
        """Something that is to be said of it."""
        return Finding(
            code=code,
            cause=_CAUSES[code],
            severity=severity,
            confidence=confidence,
            where=str(self.facts.path),
            title=title,
            evidence=evidence,
            fix=fix,
        )

    def tensors(self) -> Iterator[tuple[FileFacts, Place, TensorValues]]:
        """Every tensor that was looked at."""
        for file, values in zip(self.facts.files, self.values or [], strict=False):
            for place, each in zip(file.places, values, strict=True):
                if each is not None:
                    yield file, place, each

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "path": str(self.facts.path),
            "kind": self.facts.kind,
            "step": self.facts.step,
            "files": len(self.facts.files),
            "bytes": self.facts.size,
            "tensors": self.facts.tensors,
            "not_finite": None if self.values is None else self.not_finite,
            "state": self.state,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class PoisonEntered:
    """Between which two checkpoints the first NaN or infinity came in."""

    after: Path | None
    """The last good one before it; None if the first one that is left is poisoned already."""

    after_step: int | None
    by: Path
    by_step: int | None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "after": None if self.after is None else str(self.after),
            "after_step": self.after_step,
            "by": str(self.by),
            "by_step": self.by_step,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanResult:
    """All checkpoints, oldest first, and what follows from them."""

    checkpoints: tuple[Scanned, ...]
    findings: tuple[Finding, ...]
    """Ranked, the gravest first."""

    quick: bool = False
    """Whether numbers were left alone."""

    @property
    def verdict(self) -> Verdict:
        """Sick with any error or warning; healthy if all of it was looked at."""
        if any(finding.severity != "info" for finding in self.findings):
            return "sick"
        return "healthy" if self.checkpoints and all(each.state == "good" for each in self.checkpoints) else "unknown"

    @property
    def newest_good(self) -> Scanned | None:
        """The last one with nothing wrong, of the training that is poisoned if one is; None if there is none."""
        line = self._poisoned_line()
        if not line:
            return next((each for each in reversed(self.checkpoints) if each.state == "good"), None)
        # A training's last weights often lie beside the directories of its checkpoints, without a step.
        above = [
            each for each in self.checkpoints if each.facts.path.absolute() == line[0].facts.path.absolute().parent
        ]
        return next((each for each in (*reversed(line), *above) if each.state == "good"), None)

    @property
    def poison_entered(self) -> PoisonEntered | None:
        """Where poison came in first; None if none is poisoned."""
        good: Scanned | None = None
        for each in self._poisoned_line():
            if each.state == "poisoned":
                return PoisonEntered(
                    after=None if good is None else good.facts.path,
                    after_step=None if good is None else good.facts.step,
                    by=each.facts.path,
                    by_step=each.facts.step,
                )
            if each.state == "good":
                good = each
        return None

    def _poisoned_line(self) -> list[Scanned]:
        """The checkpoints of the training that the first poisoned one is of, oldest first."""
        poisoned = next((each for each in self.checkpoints if each.state == "poisoned"), None)
        return [] if poisoned is None else [each for each in self.checkpoints if each.training == poisoned.training]

    def to_json(self) -> dict[str, Any]:
        """As plain data, in the shape that every command has for its findings."""
        good, entered = self.newest_good, self.poison_entered
        return {
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "newest_good": None if good is None else {"path": str(good.facts.path), "step": good.facts.step},
            "poison_entered": None if entered is None else entered.to_json(),
            "checkpoints": [each.to_json() for each in self.checkpoints],
        }
