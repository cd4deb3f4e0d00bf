"""Detect silent data corruption: every n-th step is run again before the update and must be equal.

Every rank re-runs its own passes at the same step, alone: DDP is bypassed, so a re-run sends nothing. Then each rank
sends one small message, even after an error. So no rank waits forever, and either all refuse the step or none.

With ``fully_shard`` no rank can compute alone. There all ranks first agree that each can re-run the step, and then do
so together, equally often. The comparison is still per rank: its loss, and its gradients before reduction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from torch import nn

from stayfinite.core import replays
from stayfinite.core.finding import Finding
from stayfinite.core.replays import Comparable, Kind, Print, Rhythm
from stayfinite.guard.gates.buffers import RunningBuffers
from stayfinite.guard.incidents.passes import ForwardPass, Pass
from stayfinite.guard.incidents.step_rerun import (
    GradientSums,
    StepRerun,
    computes_together,
    print_of,
    why_never,
    why_not_now,
)
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.measure.roster import SHOWN, Roster


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


class Replays:
    """Runs steps again and compares them.

    Arguments:
        every: steps between re-runs; 0 for none.
    """

    def __init__(
        self,
        every: int,
        model: nn.Module,
        ranks: Ranks,
        recorder: Recorder,
        *,
        forward: ForwardPass,
        buffers: RunningBuffers,
    ) -> None:
        self._rhythm = Rhythm(every)
        self._model, self._ranks, self._recorder = model, ranks, recorder
        self._forward, self._passes = forward, forward.passes
        self._rerun = StepRerun(model, buffers, ranks.world)
        self._comparable = Comparable()
        self._sums: GradientSums | None = None
        self._roster: Roster
        """Roster of the current step."""
        self._together = computes_together(model)
        self._rehearsed = ranks.world == 1 or self._together
        self._replayed = self._mismatches = self._not_run = 0
        self._said: set[str] = set()
        self._differed: set[int] = set()
        """Ranks on which a step was not reproducible during calibration."""
        self.evidence: dict[int, dict[str, Any]] = {}
        """Record of the last mismatch, by step."""

    def expect(self, step: int, roster: Roster) -> None:
        """Hook the gradients if this step will be run again; call it before its first forward pass."""
        if self._sums is not None or not self._rhythm.due(step) or self._never():
            return
        self._roster = roster
        self._sums = GradientSums(roster.parameters, self._model)
        self._passes.replaying = True

    def forget(self) -> None:
        """Remove the hooks, after the step or its failure."""
        if self._sums is not None:
            self._sums.close()
        self._sums, self._passes.replaying = None, False

    def compare(self, step: int) -> Mismatch | None:
        """Run the step again if due; call it right after backward. A collective if due.

        Returns:
            How it differed; None if it was equal or not run again.
        """
        if not self._rhythm.due(step):
            return None
        report = self._look()
        self._replayed += report.status in (Status.SAME, Status.DIFFERS)
        reports = [report]
        if self._ranks.highest(int(report.status)) > Status.SAME:
            reports = self._ranks.gather(report)
        found = self._judge(step, reports, report)
        run = all(each.status in (Status.SAME, Status.DIFFERS) for each in reports)
        self._rhythm.passed(run=run, mismatch=found is not None)
        return found

    def finish(self, step: int) -> None:
        """Record how many steps this rank ran again."""
        if self._replayed:
            counts: dict[str, Any] = {"replayed": self._replayed, "mismatches": self._mismatches}
            self._recorder.trouble("replays", step, **counts | self._where())

    def in_words(self) -> str:
        """For ``guard.describe()``; empty if re-runs are off."""
        return f"; replays one step in {self._rhythm.every}" if self._rhythm.every else ""

    # -- on this rank ------------------------------------------------------------------------------------------------

    def _never(self) -> str:
        return why_never(self._model, self._forward.function, self._ranks.world)

    def _look(self) -> Report:
        """Run the step again. Never raises: the other ranks wait for the result."""
        sums, passes = self._sums, list(self._passes.present)
        try:
            if reason := self._never():
                return Report(Status.IMPOSSIBLE, reason)
            reason = why_not_now(passes, self._passes.let_go)
            if self._any_rank(sums is None or bool(reason)) or sums is None:
                return Report(Status.NOT_RUN, reason)
            first = print_of([each.led if each.arrived else None for each in passes], sums)
            return self._compared(first, passes, sums)
        except Exception as error:  # a re-run may raise anything, including out of memory
            text = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
            return Report(Status.IMPOSSIBLE, f"a re-run failed: {text.splitlines()[0]}")

    def _compared(self, first: Print, passes: list[Pass], sums: GradientSums) -> Report:
        forward, roster = self._forward.function, self._roster
        assert forward is not None
        if not self._rehearsed:
            self._rerun.run(forward, passes, roster, sums, rehearsal=True)
            self._rehearsed = True
        usual = replays.CALIBRATING_RERUNS if self._rhythm.calibrating else 1
        runs = [first, *(self._rerun.run(forward, passes, roster, sums) for _ in range(usual))]
        odd = [run for run in runs[1:] if not self._comparable.agree(first, run)]
        if self._any_rank(bool(odd)) and not self._rhythm.calibrating:
            runs += [self._rerun.run(forward, passes, roster, sums) for _ in range(replays.RERUNS - usual)]
        if not odd:
            return Report(Status.SAME)
        report = self._report(runs)
        if self._rhythm.calibrating:
            for run in odd:
                self._comparable.leave_out(first, run)
        return report

    def _any_rank(self, yes: bool) -> bool:
        """Whether it is true here or, if ranks compute together, on any rank. A collective then."""
        return bool(self._ranks.highest(int(yes))) if self._together else yes

    def _report(self, runs: Sequence[Print]) -> Report:
        loss, places = False, set[int]()
        for run in runs[1:]:
            differs, where = self._comparable.differing(runs[0], run)
            loss |= differs
            places.update(where)
        return Report(
            Status.DIFFERS,
            kind=replays.kind_of(runs, self._comparable),
            losses=tuple(run.value for run in runs),
            loss_differs=loss,
            parameters=tuple(self._roster.names[place] for place in sorted(places)),
        )

    # -- on all ranks alike ------------------------------------------------------------------------------------------

    def _judge(self, step: int, reports: Sequence[Report], own: Report) -> Mismatch | None:
        worst = max(report.status for report in reports)
        if worst is Status.IMPOSSIBLE:
            rank = next(rank for rank, report in enumerate(reports) if report.status is Status.IMPOSSIBLE)
            self._rhythm.stop()
            self._say_once("replay-off", step, f"replay is off: {reports[rank].reason}")
            return None
        if worst is Status.NOT_RUN:
            self._not_run += 1
            reason = next((each.reason for each in reports if each.reason), "no batch went through guard.forward")
            if self._not_run == replays.CALIBRATING:
                # Without calibration a mismatch cannot be recognized, and every step would be tried.
                off = self._rhythm.calibrating
                self._say_once(
                    "replay-not-run", step, f"{'replay is off' if off else 'some steps cannot be replayed'}: {reason}"
                )
                if off:
                    self._rhythm.stop()
            return None
        differing = tuple(rank for rank, report in enumerate(reports) if report.status is Status.DIFFERS)
        if self._rhythm.calibrating:
            self._differed.update(differing)
            if self._rhythm.done + 1 == replays.CALIBRATING:
                self._calibrated(step)
            return None
        if not differing:
            return None
        if replays.is_nature(len(differing), self._ranks.world):
            self._leave_out_differing(own)
            self._say_restricted(step)
            return None
        return self._mismatch(step, differing, reports, own)

    def _calibrated(self, step: int) -> None:
        if not self._differed:
            return
        if self._ranks.world > 1 and not replays.is_nature(len(self._differed), self._ranks.world):
            # The same code is reproducible on the other ranks.
            self._suspect(step, sorted(self._differed))
        self._say_restricted(step)

    def _say_restricted(self, step: int) -> None:
        names = len(self._roster.names)
        states = self._ranks.gather((self._comparable.loss, self._comparable.compared(names)))
        fewest = min(compared for _, compared in states)
        advice = "torch.use_deterministic_algorithms(True) makes most kernels deterministic"
        if not any(loss for loss, _ in states):
            self._rhythm.stop()
            line = f"replay is off: this model's loss differs from run to run; {advice}"
            self._say_once("replay-off", step, line)
        elif fewest < names:
            line = f"re-runs compare the loss and {fewest} of {names} gradients; the others differ from run to run"
            self._say_once("replay-restricted", step, f"{line}; {advice}")

    def _leave_out_differing(self, own: Report) -> None:
        places = {name: place for place, name in enumerate(self._roster.names)}
        self._comparable.unsteady.update(places[name] for name in own.parameters)
        self._comparable.loss &= not own.loss_differs

    def _mismatch(self, step: int, ranks: tuple[int, ...], reports: Sequence[Report], own: Report) -> Mismatch:
        if self._ranks.rank in ranks:
            self._mismatches += 1
            self.evidence.clear()
            self.evidence[step] = self._record(own)
            self._recorder.trouble("replay-mismatch", step, **self.evidence[step])
        guilty = reports[ranks[0]] if len(reports) > 1 else own
        sentence = in_words(guilty, list(map(self._rank_in_words, ranks)))
        self._recorder.find(finding_of(step, guilty, sentence), step)
        return Mismatch(ranks, sentence)

    def _suspect(self, step: int, ranks: list[int]) -> None:
        names = ", ".join(map(self._rank_in_words, ranks))
        if self._ranks.rank in ranks:
            self._recorder.trouble("replay-suspect", step, **self._where())
        line = f"WARNING: re-runs differ on {names}, but not on other ranks: possible device fault"
        self._recorder.announce("replay-uneven", step, line, ranks=ranks)

    def _record(self, own: Report) -> dict[str, Any]:
        return {
            **self._where(),
            "kind": own.kind,
            "loss_differs": own.loss_differs,
            "losses": list(own.losses),
            "parameters": list(own.parameters[:SHOWN]),
            "differing": len(own.parameters),
            "replayed": self._replayed,
            "mismatches": self._mismatches,
        }

    def _where(self) -> dict[str, Any]:
        return {"rank": self._ranks.rank, **self._ranks.machine.to_json()}

    def _rank_in_words(self, rank: int) -> str:
        machine = self._ranks.machines[rank]
        return f"{machine} (rank {rank})" if self._ranks.world > 1 else f"{machine}"

    def _say_once(self, event: str, step: int, line: str) -> None:
        if event not in self._said:
            self._said.add(event)
            self._recorder.announce(event, step, line, reason=line)
