"""Assembly of a guard, and what happens inside a step. ``guard.py`` has the public methods."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.policy import Policy
from stayfinite.core.probation import resumed
from stayfinite.core.stalls import Phase
from stayfinite.errors import UsageError
from stayfinite.guard import checks
from stayfinite.guard.feeding.loaders import Loaders
from stayfinite.guard.gates.buffers import RunningBuffers
from stayfinite.guard.gates.gates import Judge, JudgedStep, TrainingSetup
from stayfinite.guard.gates.reader import Reader
from stayfinite.guard.gates.schedule import LearningRateCut, Schedule, Scheduler
from stayfinite.guard.incidents.incidents import Incidents
from stayfinite.guard.incidents.passes import ForwardPass, Passes
from stayfinite.guard.incidents.replays import Replays
from stayfinite.guard.incidents.rerunning import Comparison
from stayfinite.guard.lifetime import Lifetime, stopped, where
from stayfinite.guard.ranks.desync import DesyncWatch
from stayfinite.guard.ranks.pipeline import as_stages, check_pipeline
from stayfinite.guard.ranks.progress import Progress
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.recovering.margins import PlanMargins
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.guard.recovering.recovery import Recovery
from stayfinite.guard.recovering.remembered import OwnState, Remembered
from stayfinite.guard.recovering.saving import Saving
from stayfinite.guard.step_actions import StepActions
from stayfinite.guard.telling.groups import Described, Groups
from stayfinite.guard.telling.journal import launch_record, now, why_unwritable
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.guard.telling.signs import EarlyWatch, PostTrainingWatch
from stayfinite.guard.words import data_event_in_words
from stayfinite.measure.fused import switched_off
from stayfinite.measure.loss_collector import LossCollector
from stayfinite.measure.reading import Reading
from stayfinite.measure.roster import take_roster
from stayfinite.measure.sample import Sample, Sampler
from stayfinite.report.terminal import Console
from stayfinite.state.parts import TrainingParts, stateful
from stayfinite.state.shards import full_value
from stayfinite.state.shelf import own_token

DEFAULT_POLICY = Policy()
WITHOUT_FORWARD = "Pass forward= to Guard to get the cause."


class Machinery:
    """All parts of a guard; the arguments are those of :class:`~stayfinite.guard.guard.Guard`."""

    _driven: ClassVar[bool] = False
    """Whether a framework clips, steps, advances the schedule and writes checkpoints; see ``guard/driven.py``."""

    @checks.naming_its_arguments
    def __init__(
        self,
        model: nn.Module | Any,
        optimizer: Optimizer,
        scheduler: Scheduler | None = None,
        scaler: GradScaler | None = None,
        max_norm: float | None = None,
        policy: Policy = DEFAULT_POLICY,
        run_dir: str | os.PathLike[str] | None = None,
        forward: Callable[[Any], Tensor] | None = None,
        *,
        describe: Callable[[Any], Described] | None = None,
        ema: nn.Module | None = None,
        tied: Mapping[str, nn.Parameter] | None = None,
        console: Console | None = None,
    ) -> None:
        self._stages = as_stages(model, tied)
        check_pipeline(self._stages, scaler=scaler, forward=forward, ema=ema)
        model = model if self._stages is None else self._stages
        # How a framework drives its scheduler is not checked.
        checked = None if self._driven else scheduler
        checks.check_construction(model, optimizer, checked, scaler, policy, run_dir, console)
        if policy.replay_every and forward is None and not self._driven:
            raise UsageError(
                f"Policy(replay_every={policy.replay_every}) needs a forward function",
                fix="build it with Guard(..., forward=lambda batch: model(**batch).loss) and call guard.forward(batch)",
            )
        if not self._driven:
            checks.check_engine(model)
        self._model = model
        self._optimizer = optimizer
        scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._max_norm = checks.check_max_norm(max_norm)
        self._judge = Judge(policy, self._max_norm)
        roster = take_roster(model, optimizer, partial=self._driven)
        checks.check_weights(roster, scaler)
        self._ranks = Ranks(model, roster)
        if run_dir is not None:
            reason = why_unwritable(Path(run_dir)) if self._ranks.first else ""
            # A framework may give only its first rank a directory.
            checks.check_room(run_dir, reason if self._driven else self._ranks.from_first(reason))
        self._desync = DesyncWatch(self._ranks, policy.desync_steps)
        cut = LearningRateCut(policy)
        self._precision = PrecisionControl(policy.precision, roster.device)
        self._setup = TrainingSetup(
            optimizer=optimizer,
            schedule=Schedule(None if self._driven else scheduler, optimizer, self._tell_own_scheduling),
            buffers=RunningBuffers(model),
            scaler=scaler,
            max_norm=self._max_norm,
            roster=roster,
            judge=self._judge,
            cut=cut,
            many=self._ranks.world > 1,
            driven=self._driven,
            # On the CPU a pass over the gradients is cheap, so keep the plain loop's bits.
            fold_clip=roster.device.type == "cuda" and not switched_off(),
        )
        self._step = 0
        self._expected: dict[int, str] = {}
        """Announced phases by their first step."""
        self._collector = LossCollector()
        self._passes = Passes(roster.device.type)
        self._groups = Groups(describe)
        self._forward = ForwardPass(forward, describe, self._collector, self._precision, self._passes, self._groups)
        watches = policy.mode == "watch"
        self._reader = Reader(model, self._setup, self._collector, policy.sample_every, watches=watches)
        self._loaders = Loaders(
            max_errors=policy.max_loader_errors,
            tell=lambda event, details: self._recorder.trouble(
                event, self._step, data_event_in_words(event, details), **details
            ),
            agree=self._ranks.agree,
            stop=lambda error: self._life.stop(
                error, self._step, f"training stopped after step {self._step}: {error.message}"
            ),
        )
        self._recorder = Recorder(
            run_dir,
            console,
            rank=self._ranks.rank,
            report=policy.report,
            groups=self._groups,
            unlearned=self._loaders.unlearned,
            hint=WITHOUT_FORWARD
            if forward is None and policy.max_incidents and not (self._driven or self._stages)
            else "",
        )
        self._watches = (
            EarlyWatch(model, self._recorder, self._reader.due, first=self._ranks.first),
            PlanMargins(model, self._recorder, self._reader.due, alone=self._ranks.world == 1),
        )
        """What is hooked in sampled steps."""
        self._post_training = PostTrainingWatch(self._recorder, first=self._ranks.first)
        self._replays = Replays(
            policy.replay_every,
            model,
            self._ranks,
            self._recorder,
            forward=self._forward,
            buffers=self._setup.buffers,
        )
        self._own = OwnState(
            self._setup,
            self._judge,
            self._collector,
            precision=self._precision,
            loaders=self._loaders,
            post_training=self._post_training,
        )
        parts = TrainingParts(
            model=model,
            optimizer=optimizer,
            scheduler=stateful(scheduler),
            scaler=scaler,
            ema=ema,
            keep_frozen=policy.keep_frozen,
            writes=self._ranks.writers,
        )
        comparison = Comparison(parts, self._ranks, self._forward)
        self._recovery = Recovery(
            parts,
            policy,
            self._ranks,
            cut=cut,
            precision=self._precision,
            loaders=self._loaders,
            recorder=self._recorder,
            rerun=lambda: comparison.possible,
            notes=lambda: {"guard": self._own.gather(self._step), "batches": self._loaders.positions},
        )
        self._judge.options = self._recovery.options
        self._incidents = Incidents(
            parts,
            policy,
            self._ranks,
            self._recorder,
            forward=self._forward,
            known_good=self._recovery.known_good,
            evidence=self._replays.evidence.get,
            items=self._loaders.items,
        )
        if policy.mode == "watch" and forward is not None and roster.device.type == "cpu":
            self._setup.alarm = lambda decided: self._incidents.look(decided, self._step, taken=False)
        self._after = StepActions(self._setup, self._judge, self._recovery, self._recorder, self._incidents, comparison)
        self._saving = None if run_dir is None or self._driven else Saving(parts, policy, self._ranks, self._recorder)
        self._progress = Progress(
            self._ranks,
            self._recorder.directory,
            roster.device,
            floor=policy.stall_seconds,
            launch=own_token,
            tell=self._recorder.trouble,
        )
        self._life = Lifetime(self._ranks, self._recorder, self._incidents, self._saving, self._replays, self._progress)

    # -- inside a step -----------------------------------------------------------------------------------------------

    def _take_in(self, loss: Tensor, parts: Mapping[str, Tensor | float]) -> None:
        whole = {name: full_value(part) if isinstance(part, Tensor) else part for name, part in parts.items()}
        self._collector.add(loss, whole)
        self._passes.trained(loss)
        self._loaders.trained(self._step + 1)

    def _hear(self, signals: Mapping[str, Tensor | float] | None) -> None:
        if signals:
            checks.check_signals(signals)
            whole = {name: full_value(value) if isinstance(value, Tensor) else value for name, value in signals.items()}
            self._collector.hear(whole, self._setup.roster.device)

    def _weigh(
        self, loss: Tensor, *, unscale: bool = True, norm: Tensor | None = None, scale: float | None = None
    ) -> tuple[Reading, Sampler | None, list[JudgedStep]]:
        """Read the complete gradients, combine them with other ranks, and pass the step to the gate.

        Arguments:
            unscale: whether to unscale the gradients, if there is a scaler.
            norm: gradient norm over all ranks, from an engine that owns them.
            scale: loss scale of an engine that scales itself.
        """
        if self._reader.renew_roster():
            self._recovery.renew()
        self._recorder.launch(self._step, self._launch_record)
        first = not self._judge.memory.ladder.accepted
        self._progress.at(Phase.MEETING, self._step + 1)
        found = self._replays.compare(self._step + 1)
        if norm is None:
            self._ranks.settle(self._setup.roster)
        own = self._reader.read(self._step + 1, loss, first=first, unscale=unscale, norm=norm)
        if scale is not None:
            own = replace(own, loss_scale=torch.tensor(scale, device=own.gradients.total.device))
        reading = self._ranks.combine(own, self._setup.roster)
        if found is not None:
            reading = replace(reading, mismatch=found.sentence, mismatched=found.ranks)
        self._progress.at(Phase.AFTER, reading.step)
        self._step = reading.step
        self._passes.close(self._step)
        self._groups.close(self._step)
        sampler = self._reader.sampler(reading)
        return reading, sampler, self._after.gate.take(reading)

    def _start_afresh(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._forget_gathered()

    def _forget_gathered(self) -> None:
        self._collector.clear()
        self._passes.forget()
        self._groups.forget()
        self._replays.forget()
        for watch in self._watches:
            watch.forget()

    def _tell_sample(self, sample: Sample) -> None:
        self._recorder.post(sample, self._setup.roster.names)
        for watch in self._watches:
            watch.post(sample)

    def _take_note(self, decided: list[JudgedStep], *, wait: bool = False) -> None:
        self._recorder.collect(wait=wait)
        for watch in self._watches:
            watch.collect(wait=wait)
        for finding in self._desync.collect(wait=wait):
            self._recorder.find(finding, self._step)
        decision = self._after.follow(decided, self._step)
        for each in decided:
            self._post_training.take(each.opened.signals)
        if decision is not None:
            found = self._incidents.found_on(decision)
            raise self._life.stop(stopped(decision, found), self._step, f"training stopped at {where(decision)}")

    def _catch_up(self) -> None:
        """Wait for the numbers of all steps so far and act on them."""
        self._take_note(self._after.gate.drain(), wait=True)

    def _save(self, saving: Saving) -> None:
        self._catch_up()
        self._recovery.checkpoint(self._step, saving)

    def _tell_own_scheduling(self) -> None:
        reason = "the scheduler was stepped outside of the guard; remove scheduler.step() from the loop"
        self._recorder.announce("scheduler-stepped", self._step, f"WARNING: {reason}", reason=reason)

    def _begin_phase(self, what: str) -> None:
        self._catch_up()
        self._after.begin_phase()
        self._recorder.announce("new-phase", self._step, f"new phase: {what}", expected=True, reason=what)

    def _between_steps(self) -> None:
        self._desync.look(self._step, self._setup.roster)
        for watch in self._watches:
            watch.expect(self._step + 1)
        if (slowest := self._progress.slowest(self._step)) is not None:
            self._recorder.pace(slowest, self._step)
        if (what := self._expected.pop(self._step + 1, None)) is not None:
            self._begin_phase(what)
        if self._saving is not None:
            self._saving.tell()
            if self._saving.due(self._step):
                self._save(self._saving)
                return
        self._recovery.snapshot_if_due(self._step)

    def _recall(self, remembered: Remembered) -> None:
        self._step = remembered.step
        self._own.give_back(remembered)
        memory = remembered.memory
        self._after.continue_with(replace(memory, probation=resumed(memory.probation, self._judge.policy)))

    def _checkpoints(self) -> Saving:
        self._life.check_open()
        if self._saving is None:
            raise UsageError("no directory for checkpoints", fix="build it with Guard(..., run_dir='runs/first')")
        return self._saving

    def _launch_record(self) -> dict[str, Any]:
        first = self._collector.batch_shape
        record = launch_record(
            self._model, self._optimizer, self._setup.roster, self._judge.policy, self._max_norm, now(), first
        )
        return record | {"ranks": [machine.to_json() for machine in self._ranks.machines]}
