"""Lifetime of a guard, and the error that ends a stopped training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from stayfinite.core.decision import Code, Decision
from stayfinite.errors import BadStep, DeviceFault, GuardClosed, TrainingDiverged, TrainingStopped
from stayfinite.guard.incidents.incidents import Incidents
from stayfinite.guard.incidents.replays import Replays
from stayfinite.guard.ranks.progress import Progress
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.recovering.saving import Saving
from stayfinite.guard.supervised import leave_word, use_exit_code
from stayfinite.guard.telling.recorder import Recorder


def where(decision: Decision) -> str:
    """Step and batch in words."""
    signals = decision.signals
    shape = f" ({signals.batch_shape})" if signals.batch_shape else ""
    return f"step {signals.step}, batch {signals.batch}{shape}"


UNTOUCHED = "Weights unchanged by the refused steps."
GENERAL = (
    "inspect the named batch and parameters. Under fp16, try the batch in fp32 or bf16. Otherwise lower the learning "
    "rate or lengthen the warmup"
)
"""Advice if nothing better is known."""


def stopped(decision: Decision, found: Mapping[str, Any] | None = None) -> TrainingDiverged | DeviceFault:
    """Error for a decision to stop.

    Arguments:
        found: autopsy of that trouble, if any: its verdict, and a verified fix instead of general advice.
    """
    if decision.code is Code.REPLAY_MISMATCH:
        return DeviceFault(
            f"training stopped at {where(decision)}: {decision.reason}\n  {UNTOUCHED}",
            step=decision.step,
            code=decision.code,
            fix="resume on another machine; `stayfinite hardware RUNS` names the suspect",
        )
    kind = BadStep if decision.code is Code.STRICT else TrainingDiverged
    verdict, advice = ("", GENERAL) if found is None else (found["verdict"], GENERAL)
    if found is not None and found["fix"]["verified"]:
        verdict, _, proved = verdict.partition(" Fix: ")
        advice = proved.removesuffix(".") or found["fix"]["text"]
    return kind(
        f"training stopped at {where(decision)}: {decision.reason}"
        + (f". Autopsy: {verdict}" if verdict else "")
        + f"\n  {UNTOUCHED}",
        step=decision.step,
        code=decision.code,
        fix=advice,
    )


Stopped = TypeVar("Stopped", bound=TrainingStopped)


@dataclass(eq=False)
class Lifetime:
    """Open until closed, stopped, or the loop fails; ends once, after everything is written."""

    ranks: Ranks
    recorder: Recorder
    incidents: Incidents
    saving: Saving | None
    replays: Replays
    progress: Progress
    over: str = ""
    """Why no further step is taken; empty while open."""

    def check_open(self) -> None:
        if self.over:
            raise GuardClosed(
                f"the guard takes no more steps: {self.over}",
                fix="build a new Guard; load_state_dict() to continue from this one",
            )

    def hurry(self) -> None:
        """Start nothing that takes long, because the loop has failed."""
        self.incidents.hurry()
        if self.saving is not None:
            self.saving.hurry()

    def stop(self, error: Stopped, step: int, reason: str) -> Stopped:
        """End the guard with this error and return it; if uncaught, it sets the exit code."""
        if not self.over:
            # First of all: writing everything may take longer than a launcher waits.
            leave_word("stopped", step, code=error.exit_code, reason=reason)
            self.finish("stopped", step, reason, exit_code=error.exit_code)
        use_exit_code(error)
        return error

    def finish(self, event: str, step: int, reason: str, **details: Any) -> None:
        """Wait for pending work and record the end."""
        self.over = reason
        self.ranks.stop_looking()
        self.progress.stop()
        if self.saving is not None:
            self.saving.tell(wait=True)
        self.incidents.finish()
        self.replays.finish(step)
        self.recorder.finish(event, step, reason, **details)
