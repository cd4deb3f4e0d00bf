"""Report of one rank on a step that was run again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from stayfinite.core.finding import Finding
from stayfinite.core.replays import Kind
from stayfinite.measure.reading import Reading


class Status(IntEnum):
    """Outcome of a rank's re-run; the highest over all ranks counts."""

    SAME = 0
    NOT_RUN = 1
    DIFFERS = 2
    IMPOSSIBLE = 3


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a re-run on one rank."""

    status: Status
    reason: str = ""
    """Why it was not run again."""
    kind: Kind = "transient"
    losses: tuple[float, ...] = ()
    """Losses of the step and its re-runs, if they differ."""
    loss_differs: bool = False
    parameters: tuple[str, ...] = ()
    """Parameters whose gradients differ."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A step whose re-run differed: on which ranks, and how."""

    ranks: tuple[int, ...]
    sentence: str


def marked(reading: Reading, found: Mismatch | None) -> Reading:
    """Add the result of the re-runs to a reading."""
    return reading if found is None else replace(reading, mismatch=found.sentence, mismatched=found.ranks)


def in_words(report: Report, machines: list[str]) -> str:
    """Describe how a re-run differed, and where."""
    what = []
    if report.loss_differs:
        again = dict.fromkeys(f"{value:.8g}" for value in report.losses[1:])
        what.append(f"loss {report.losses[0]:.8g}, re-run {', '.join(again)}")
    if report.parameters:
        what.append(f"{len(report.parameters)} gradients differ, first {report.parameters[0]}")
    return f"{report.kind} fault on {', '.join(machines)}: {'; '.join(what)}"


def finding_of(step: int, report: Report, sentence: str) -> Finding:
    """The mismatch as a finding."""
    lasting = report.kind == "persistent"
    return Finding(
        code="SF505", cause="hardware", severity="error" if lasting else "warning",
        confidence=0.9 if lasting else 0.6, where=f"step {step}",
        title="the same step gave a different result when re-run",
        evidence=(sentence,),
        fix="drain the machine and test the device (dcgmi diag -r 3); `stayfinite hardware RUNS` shows which machine",
    )  # fmt: skip
