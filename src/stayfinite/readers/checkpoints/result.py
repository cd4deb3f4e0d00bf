"""What a scan came to, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stayfinite.core.finding import Finding
from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts, Place, TensorValues

Verdict = Literal["healthy", "sick", "unknown"]
SHOWN = 6
"""Lines of evidence of one kind."""

State = Literal["good", "poisoned", "damaged", "suspect", "unknown"]


def listed(lines: list[str]) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    more = len(lines) - SHOWN
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
        if self.values is None or ("SF703", "warning") in grave:
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
        good = [each for each in reversed(self.checkpoints) if each.state == "good"]
        own = [each for each in good if each in self._poisoned_line()]
        return next(iter(own or good), None)

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
        """The checkpoints beside the first poisoned one, oldest first: with steps, if that one has a step."""
        poisoned = next((each for each in self.checkpoints if each.state == "poisoned"), None)
        if poisoned is None:
            return []
        parent, stepped = poisoned.facts.path.absolute().parent, poisoned.facts.step is not None
        line = [each for each in self.checkpoints if each.facts.path.absolute().parent == parent]
        return [each for each in line if not stepped or each.facts.step is not None]

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
