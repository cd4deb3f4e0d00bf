"""The result of a scan as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stayfinite.core.finding import Finding, Severity
from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts, Place, TensorValues

Verdict = Literal["healthy", "sick", "unknown"]
SHOWN = 6  # evidence lines of one kind

LONGEST = 400  # characters per evidence line; names come from files

_CAUSES = {
    "SF701": "resume-state-missing", "SF702": "poisoned-checkpoint", "SF703": "corrupt-checkpoint",
    "SF704": "architecture-mismatch", "SF705": "adapter-overwritten",
}  # fmt: skip

State = Literal["good", "poisoned", "damaged", "suspect", "unknown"]


def counted(count: int, noun: str) -> str:
    """A count with its noun: ``1 tensor``, ``2 tensors``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(lines: list[str]) -> tuple[str, ...]:
    """The first lines, plus a line with the number of omitted ones."""
    more = len(lines) - SHOWN
    lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]} …" for line in lines]
    return (*lines[:SHOWN], *([f"… and {more} more"] if more > 0 else []))


@dataclass(kw_only=True, slots=True)
class Scanned:
    """A checkpoint, the values of its tensors, and its findings."""

    facts: CheckpointFacts
    values: list[list[TensorValues | None]] | None = None
    """Per file, in the order of its places; None if values were not read."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def state(self) -> State:
        """The worst known state."""
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
        """Number of non-finite values."""
        return sum(each.bad for file in self.values or [] for each in file if each is not None)

    @property
    def name(self) -> str:
        """Its name in a sentence."""
        return self.facts.path.name if self.facts.step is None else f"the checkpoint of step {self.facts.step}"

    @property
    def training(self) -> tuple[Path, str]:
        """The key of its training run: the directory and, without steps, the naming pattern."""
        manner = "step" if self.facts.step is not None else re.sub(r"\d+", "0", self.facts.path.name)
        return self.facts.path.absolute().parent, manner

    def record(
        self, code: str, severity: Severity, confidence: float, *, title: str, evidence: tuple[str, ...], fix: str
    ) -> None:
        """Add a finding about this checkpoint."""
        found = Finding(
            code=code, cause=_CAUSES[code], severity=severity, confidence=confidence, where=str(self.facts.path),
            title=title, evidence=evidence, fix=fix,
        )  # fmt: skip
        self.findings.append(found)

    def tensors(self) -> Iterator[tuple[FileFacts, Place, TensorValues]]:
        """Yield every tensor whose values were read."""
        for file, values in zip(self.facts.files, self.values or [], strict=False):
            for place, each in zip(file.places, values, strict=True):
                if each is not None:
                    yield file, place, each

    def to_json(self) -> dict[str, Any]:
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
    """The two checkpoints between which the first NaN or infinity appeared."""

    after: Path | None
    """The last good checkpoint before it; None if the oldest one is already poisoned."""

    after_step: int | None
    by: Path
    by_step: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "after": None if self.after is None else str(self.after),
            "after_step": self.after_step,
            "by": str(self.by),
            "by_step": self.by_step,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanResult:
    """All checkpoints, oldest first, and the findings."""

    checkpoints: tuple[Scanned, ...]
    findings: tuple[Finding, ...]
    """Most severe first."""

    quick: bool = False
    """Whether values were not read."""

    @property
    def verdict(self) -> Verdict:
        """Sick with any error or warning; healthy if everything was checked."""
        if any(finding.severity != "info" for finding in self.findings):
            return "sick"
        return "healthy" if self.checkpoints and all(each.state == "good" for each in self.checkpoints) else "unknown"

    @property
    def newest_good(self) -> Scanned | None:
        """The last checkpoint without problems, of the poisoned run if there is one; None if there is none."""
        line = self._poisoned_line()
        if not line:
            return next((each for each in reversed(self.checkpoints) if each.state == "good"), None)
        # The final weights of a run are often next to its checkpoint directories, without a step.
        above = [
            each for each in self.checkpoints if each.facts.path.absolute() == line[0].facts.path.absolute().parent
        ]
        return next((each for each in (*reversed(line), *above) if each.state == "good"), None)

    @property
    def poison_entered(self) -> PoisonEntered | None:
        """Where poison first appeared; None if no checkpoint is poisoned."""
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
        """The checkpoints of the first poisoned run, oldest first."""
        poisoned = next((each for each in self.checkpoints if each.state == "poisoned"), None)
        return [] if poisoned is None else [each for each in self.checkpoints if each.training == poisoned.training]

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON, in the shape that all commands share."""
        good, entered = self.newest_good, self.poison_entered
        return {
            "verdict": self.verdict,
            "findings": [finding.to_json() for finding in self.findings],
            "newest_good": None if good is None else {"path": str(good.facts.path), "step": good.facts.step},
            "poison_entered": None if entered is None else entered.to_json(),
            "checkpoints": [each.to_json() for each in self.checkpoints],
        }
