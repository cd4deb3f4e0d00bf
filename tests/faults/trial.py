"""One fault against one training: its lives, what they left, and whether that is the right outcome."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import evidence
from faults.launching import Life, launch
from faults.short_training import CHECKPOINT_STEPS, STEPS, Job, Sabotage

TOLERANCE = 0.1
"""Share of the fault-free run's progress that a surviving run may have missed at its end."""


@dataclass
class Outcome:
    """What became of one fault."""

    kind: str
    ending: str = ""
    """``survived``, ``stopped`` or ``resumed``."""
    complaints: list[str] = field(default_factory=list)
    """Why it is not the right outcome; empty when it is."""
    steps_lost: int = 0
    deadlocks: int = 0
    poisoned: int = 0
    """Checkpoints that are called good and hold NaN or infinity."""
    progress_kept: float | None = None
    """Share of the fault-free run's progress in validation loss, for a run that went to its end."""
    story: str = ""
    """Enough to run it again."""

    @property
    def right(self) -> bool:
        """Whether all is as it should be."""
        return not self.complaints and not self.deadlocks and not self.poisoned


class Trial:
    """Runs the lives of one job and gathers what is to be said about them."""

    def __init__(self, kind: str, job: Job, chance: random.Random, fault_free: Life) -> None:
        self.job, self.chance = job, chance
        self.fault_free = fault_free
        self.outcome = Outcome(kind, story=f"{kind} {job.model} seed {job.seed} in {job.folder}")
        self.spoiled: set[Path] = set()
        """Checkpoints that the injector has damaged."""
        self._lives = 0

    # -- living ------------------------------------------------------------------------------------------------------

    def live(self, sabotage: Callable[..., Sabotage] = Sabotage, *, on: int | None = None, **settings: Any) -> Life:
        """One life of the job under this sabotage, on one rank only if ``on`` is given."""
        seed = self.chance.random()

        def build(number: int, rank: int) -> Sabotage:
            if on is not None and rank != on:
                return Sabotage(random.Random(seed), number, rank)
            return sabotage(random.Random(seed), number, rank, **settings)

        life = launch(self.job, self._lives, build)
        self._lives += 1
        self.outcome.deadlocks += life.hung
        self.outcome.story += f"; {sabotage.__name__} {settings} -> {life.exit_codes}"
        self.look_for_poison()
        return life

    def look_for_poison(self) -> None:
        """Scan every checkpoint that is called good and was not damaged on purpose."""
        for path in evidence.good_checkpoints(self.job):
            if path not in self.spoiled and evidence.is_poisoned(path):
                self.spoiled.add(path)
                self.outcome.poisoned += 1

    # -- judging -----------------------------------------------------------------------------------------------------

    def demand(self, fulfilled: bool, complaint: str) -> None:
        """Something that the right outcome includes."""
        if not fulfilled:
            self.outcome.complaints.append(complaint)

    def survived(self, life: Life) -> Outcome:
        """Training went to its end, close to where it would have been."""
        self.outcome.ending = "survived"
        if self._finished(life):
            reached, wanted = life.result["loss"], self.fault_free.result["loss"]
            kept = self.outcome.progress_kept or 0.0
            self.demand(kept >= 1 - TOLERANCE, f"loss {reached:.3g} at the end, fault-free {wanted:.3g}")
        self.outcome.steps_lost += evidence.steps_thrown_away(self.job)
        return self.outcome

    def untouched(self, life: Life) -> Outcome:
        """Training ended with every bit as if nothing had happened."""
        self.outcome.ending = self.outcome.ending or "survived"
        if self._finished(life):
            for rank, (mine, theirs) in enumerate(zip(life.results, self.fault_free.results, strict=True)):
                same = bool(mine and theirs and mine["weights"] == theirs["weights"])
                self.demand(same, f"the weights of rank {rank} differ from those of the fault-free run")
            self.demand(life.result["step"] == STEPS, f"{life.result['step']} steps instead of {STEPS}")
        return self.outcome

    def stopped(self, life: Life, exit_code: int, *words: str) -> Outcome:
        """Training was stopped for this reason, on every rank."""
        self.outcome.ending = "stopped"
        codes = set(life.exit_codes)
        self.demand(codes == {exit_code}, f"exit codes {life.exit_codes} instead of {exit_code}: {_end(life.log)}")
        self.demand(life.says(*words), f"its message does not hold {words}: {_end(life.log)}")
        self.outcome.steps_lost += evidence.steps_thrown_away(self.job)
        return self.outcome

    def died(self, life: Life, *exit_codes: int) -> None:
        """The process ended as the fault wanted it to."""
        self.demand(life.exit_codes[0] in exit_codes, f"it ended with {life.exit_codes}: {_end(life.log)}")

    def loses_little(self, reached: int, left: list[Path], life: Life, *, at_most: int = 2 * CHECKPOINT_STEPS) -> None:
        """The life after a death began with the newest good checkpoint, not far behind where the last one had come."""
        self.outcome.ending = "resumed"
        if not life.result:
            return
        first = life.result["first"]
        lost = reached - first
        self.outcome.steps_lost += max(lost, 0)
        newest = evidence.step_of(left[0]) if left else 0
        self.demand(first == newest, f"resumed from step {first} though the newest good checkpoint is of step {newest}")
        self.demand(lost <= at_most, f"{lost} steps lost, with a checkpoint every {CHECKPOINT_STEPS}")

    def _finished(self, life: Life) -> bool:
        self.demand(life.finished, f"it did not finish: exit codes {life.exit_codes}: {_end(life.log)}")
        if life.finished:
            whole = self.fault_free.result
            self.outcome.progress_kept = (whole["before"] - life.result["loss"]) / (whole["before"] - whole["loss"])
        return life.finished


def _end(log: str) -> str:
    return " | ".join(log.strip().splitlines()[-3:])
