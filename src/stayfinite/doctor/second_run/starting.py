"""Start the second run, wait for it, and report its result."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stayfinite.doctor.explaining import CONSEQUENCES, what_happened
from stayfinite.doctor.frames import short
from stayfinite.doctor.record import BadStep, Program
from stayfinite.doctor.told import PROVED, SEEN, Told, told

PLAN, ANSWER = "plan.pickle", "answer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the bad step is, and what must match until then."""

    backward: int
    """The bad step's last backward call, counted from 1."""
    step: int
    """Steps before the bad one."""
    trace_after: int
    """Optimizer steps after which to start tracing."""
    has_optimizer: bool
    """Without an optimizer, steps are counted by backward calls."""
    losses: array[float]
    """Loss of each backward call, up to the bad one."""
    generators: dict[str, Any]
    """Generator states at program start."""

    def write(self, folder: Path) -> None:
        (folder / PLAN).write_bytes(pickle.dumps(self))

    @staticmethod
    def read(folder: Path) -> Plan:
        """Read the plan, written by our own process to a private folder."""
        plan: Plan = pickle.loads((folder / PLAN).read_bytes())
        return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result of the second run."""

    differs: Sequence[float] | None = None
    """First backward call with a different loss: index, loss in the first run, loss in the second."""
    finding: dict[str, Any] | None = None
    """Arguments for ``told``, if the bad values occurred again."""
    error: str = ""

    def write(self, folder: Path) -> None:
        """Write the answer for the first run."""
        (folder / ANSWER).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Answer | None:
        """The answer, or None if there is none."""
        try:
            return cls(**json.loads((folder / ANSWER).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None


LEAST_SECONDS = 60.0
SLOWER = 1.8
"""Time limit as a multiple of the first run; both together stay below 3."""
HASH_SEED = "PYTHONHASHSEED"


def plan_of(program: Program, generators: dict[str, Any]) -> Plan | None:
    """The plan to reach the bad step again, or None without one."""
    bad = program.bad
    if bad is None or not bad.backward:
        return None
    stepping = sum(1 for each in program.optimizers.values() if each.steps)
    return Plan(
        backward=bad.backward,
        step=bad.step,
        # With several optimizers, inputs of this step may be computed before another's step.
        trace_after=max(0, bad.steps_taken - max(0, stepping - 1)),
        has_optimizer=bool(program.optimizers) and not program.by_hand,
        losses=program.losses_in_order[: bad.backward],
        generators=generators,
    )


def run_again(plan: Plan, words: Sequence[str], seconds: float) -> Answer:
    """Run the program up to its bad step in its own process.

    Arguments:
        words: the program and its arguments, as passed to ``stayfinite doctor``.
        seconds: duration of the first run.
    """
    with tempfile.TemporaryDirectory(prefix="stayfinite-second-") as folder:
        plan.write(Path(folder))
        command = [sys.executable, "-W", "ignore", "-m", "stayfinite", "doctor", "--second-run", folder, *words]
        environment = {HASH_SEED: "0"} | os.environ
        try:
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=max(LEAST_SECONDS, SLOWER * seconds), env=environment, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Answer(error="it took too long")
        except OSError as error:
            return Answer(error=f"it could not be started: {error}")
        return Answer.read(Path(folder)) or Answer(error=f"it ended with exit code {ended.returncode}")


def tell(answer: Answer, bad: BadStep) -> Told:
    """Finding for the bad step from the second run."""
    evidence = [what_happened(bad)]
    same = answer.differs is None
    found = answer.finding
    if found is not None:
        evidence += found["evidence"]
    if answer.differs is not None:
        at, before, now = int(answer.differs[0]), *answer.differs[1:]
        evidence.append(f"The program is not deterministic: loss {at + 1} was {before:.9g}, in a second run {now:.9g}.")
        evidence.append("Seed every random generator it uses, then run the doctor again.")
    elif found is not None:
        count = f"all {bad.backward} losses" if bad.backward > 1 else "its loss"
        evidence.append(f"A second run reproduced {count} to the last bit.")
    else:
        evidence.append(f"A second run did not explain it: {answer.error}.")
    if found is None:
        place, where = bad.place, short(bad.place)
        return told("nan-loss", evidence, place=place, where=where, confidence=0.6, weight=0.5)
    place = (str(found["place"][0]), int(found["place"][1]))
    decided = found["cause"] != "nan-loss"
    return told(
        found["cause"],
        evidence,
        known_by=PROVED if same else SEEN,
        place=place if place[0] else bad.place,
        where=f"{short(place) or short(bad.place)}, step {bad.step}",
        fix=found["fix"],
        confidence=min(0.99, found["confidence"] * (1.0 if same else 0.8)),
        severity="error",
        weight=CONSEQUENCES.get(found["cause"], 3.0) if same and decided else 0.8,
    )
