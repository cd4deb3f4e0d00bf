"""Watch one program from start to end: attach, explain a bad step, detach, examine, judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stayfinite.doctor.examining import Examiner
from stayfinite.doctor.explaining import Explainer
from stayfinite.doctor.judges import judge_all
from stayfinite.doctor.record import Program
from stayfinite.doctor.second_run.starting import Answer, Plan, plan_of, tell
from stayfinite.doctor.told import PROVED, Told, ranked
from stayfinite.doctor.watching.watcher import Watcher
from stayfinite.state.rng import capture_rng

AFTER_A_BAD_STEP = frozenset({"loss-diverging", "lr-too-low", "zero-gradient", "cannot-overfit-batch"})
"""Findings that mean nothing once the weights are poisoned."""


@dataclass(slots=True)
class Seen:
    """Result of a watched program."""

    program: Program
    findings: list[Told] = field(default_factory=list)
    replayed: bool = False
    """Whether the bad step, or an early one, could be re-run."""
    why_not: str = ""

    @property
    def sick(self) -> bool:
        """Whether any finding matters."""
        return any(each.loud for each in self.findings)


class Session:
    """Watches one program.

    Arguments:
        guard: refuse non-finite steps.
        strict: end the program at the first one.
    """

    def __init__(self, *, guard: bool = False, strict: bool = False) -> None:
        self._explainer = Explainer()
        self.watcher = Watcher(self._on_bad, guard=guard, strict=strict)
        self.stand_aside: Callable[[], bool] = lambda: False
        """Whether another guard is active and explains bad steps."""
        self._start = 0.0
        self.generators: dict[str, Any] = {}
        """Generator states at program start."""

    def _on_bad(self, *told: Any) -> None:
        if not self.stand_aside():
            self._explainer(*told)

    def begin(self) -> None:
        self._start = time.monotonic()
        if not self.generators:
            self.generators = capture_rng()
        self.watcher.attach()

    def end(self) -> None:
        self.watcher.detach()
        self.watcher.program.seconds = time.monotonic() - self._start

    @contextmanager
    def watching(self) -> Iterator[Watcher]:
        """Watch the program within this context."""
        self.begin()
        try:
            yield self.watcher
        finally:
            self.end()

    def printed(self, text: str) -> None:
        """Record printed text."""
        printed = self.watcher.program.printed
        if len(printed) < 20_000:
            printed += [(self.watcher.program.steps, line) for line in text.splitlines() if line.strip()]

    def proved(self) -> list[dict[str, Any]]:
        """Findings proved by re-run, as plain data."""
        return [each.to_json() for each in self._explainer.findings if each.known_by == PROVED]

    def needs_second_run(self) -> Plan | None:
        """Plan for a second run if the bad step could not be replayed, else None."""
        explainer = self._explainer
        unexplained = self.watcher.program.bad is not None and bool(explainer.findings) and not explainer.replayed
        return plan_of(self.watcher.program, self.generators) if unexplained else None

    def learn(self, answer: Answer) -> None:
        """Replace the bad step's finding with that of a second run."""
        assert self.watcher.program.bad is not None
        self._explainer.findings[:] = [tell(answer, self.watcher.program.bad)]
        if answer.finding is not None and answer.differs is None:
            self._explainer.replayed, self._explainer.why_not = True, ""

    def conclude(self, *, examine: bool = True) -> Seen:
        """Judge the record. ``examine`` re-runs an early step for the probes."""
        program = self.watcher.program
        found: list[Told] = [*self._explainer.findings]
        seen = [*judge_all(program)]
        if program.bad is not None:
            seen = [each for each in seen if each.finding.cause not in AFTER_A_BAD_STEP]
        found += seen
        replayed, why_not = self._explainer.replayed, self._explainer.why_not
        if examine and program.bad is None and program.trains:
            examiner = Examiner(self.watcher)
            self.watcher.attach()  # the replay needs the hooks to stop at backward
            self.watcher.notes.busy = True
            try:
                found += list(examiner.findings())
            except Exception as error:  # a model may fail a probe in any way
                program.troubles.append(f"examining: {type(error).__name__}: {error}"[:300])
            finally:
                self.watcher.detach()
                self.watcher.notes.busy = False
            replayed, why_not = not examiner.why_not, examiner.why_not
        return Seen(program=program, findings=_explained(ranked(found)), replayed=replayed, why_not=why_not)


def _explained(findings: list[Told]) -> list[Told]:
    """Drop findings that another one explains."""
    from stayfinite.rules.registry import rule_of

    beaten: set[str] = set()
    for each in findings:
        if each.loud:
            beaten |= set(rule_of(each.finding.cause).beats)
    first = findings[:1]
    return first + [each for each in findings[1:] if each.finding.cause not in beaten]


def _skipped_by_scaler(program: Program) -> dict[str, Any] | None:
    """Steps that a GradScaler skipped, of how many, and its last scale; None if it skipped none."""
    if not program.skipped or not len(program.scales):
        return None
    return {"steps": program.skipped, "of": len(program.scales), "scale": program.scales.values[-1]}


def plain(seen: Seen) -> dict[str, Any]:
    """As plain data."""
    program = seen.program
    return {
        "steps": program.backwards if program.by_hand else program.steps,
        "optimizers": [type(each.optimizer).__name__ for each in program.optimizers.values()],
        "models": [type(each.module).__name__ for each in program.models.values()],
        "bad_step": None if program.bad is None else program.bad.step,
        "refused": program.refused,
        "skipped_by_scaler": _skipped_by_scaler(program),
        "findings": [each.to_json() for each in seen.findings],
        "replayed": seen.replayed,
        "why_not_replayed": seen.why_not,
        "not_examined": seen.why_not if program.bad is None and program.steps else "",
        "own_troubles": program.troubles,
        "seconds": round(program.seconds, 3),
    }
