"""The guard: refuses a bad step before it touches a parameter, a moment or the schedule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.decision import Decision
from stayfinite.core.policy import Policy
from stayfinite.core.probation import resumed
from stayfinite.core.stalls import Phase
from stayfinite.errors import OrderError, UsageError
from stayfinite.guard.checks import (
    check_construction,
    check_engine,
    check_first_backward,
    check_gathered,
    check_loss,
    check_max_norm,
    check_parts,
    check_weights,
)
from stayfinite.guard.consequences import Consequences
from stayfinite.guard.ending import stopped, where
from stayfinite.guard.feeding.batches import Batches
from stayfinite.guard.feeding.loaders import Loaders
from stayfinite.guard.gates.buffers import RunningBuffers
from stayfinite.guard.gates.cut import LearningRateCut
from stayfinite.guard.gates.gates import Heard, Workshop
from stayfinite.guard.gates.judge import Judge
from stayfinite.guard.gates.reader import Reader
from stayfinite.guard.gates.schedule import Schedule, Scheduler
from stayfinite.guard.graphing.graphed import GraphedStep, graphed
from stayfinite.guard.incidents.comparing import Comparison
from stayfinite.guard.incidents.forward_pass import ForwardPass
from stayfinite.guard.incidents.incidents import Incidents
from stayfinite.guard.incidents.passes import Passes
from stayfinite.guard.incidents.replay_report import Mismatch, marked
from stayfinite.guard.incidents.replays import Replays
from stayfinite.guard.lifetime import Lifetime
from stayfinite.guard.on_probation import OnProbation
from stayfinite.guard.ranks.desync import DesyncWatch
from stayfinite.guard.ranks.pipeline import as_stages, check_pipeline
from stayfinite.guard.ranks.progress import Progress
from stayfinite.guard.ranks.ranks import Ranks
from stayfinite.guard.recovering.own_state import OwnState
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.guard.recovering.recovery import Recovery
from stayfinite.guard.recovering.remembered import Remembered
from stayfinite.guard.recovering.saving import Saving
from stayfinite.guard.telling.early import EarlyWatch
from stayfinite.guard.telling.groups import Described, Groups
from stayfinite.guard.telling.journal import now
from stayfinite.guard.telling.launch import launch_record
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.guard.words import data_event_in_words, policy_in_words, training_in_words
from stayfinite.measure.fused import switched_off
from stayfinite.measure.intake import Intake
from stayfinite.measure.reading import Reading
from stayfinite.measure.roster import take_roster
from stayfinite.measure.sample import Sample
from stayfinite.report.terminal import Console
from stayfinite.state.parts import TrainingParts, stateful
from stayfinite.state.shards import full_value
from stayfinite.state.shelf import own_token

DEFAULT_POLICY = Policy()


class Guard:
    """Guards a training loop.

    Example:
        >>> guard = Guard(model, optimizer, scheduler=scheduler, max_norm=1.0, run_dir="runs/first")
        >>> for batch in loader:
        ...     loss = compute_loss(model, batch)
        ...     guard.step(loss)  # backward, measure, clip, gate, optimizer, scheduler, zero_grad
        >>> guard.close()

    With gradient accumulation call ``guard.backward(loss / k)`` k times and then ``guard.step()``.

    Arguments:
        model: the module that is trained; its parameters' names are used in messages. In a pipeline the
            ``PipelineStage`` of this rank, or the list of them; see ``docs/integrations/pipelines.md``.
        optimizer: holds every trainable parameter of the model.
        scheduler: a learning-rate scheduler that moves once a step; stands still at a refused one.
        scaler: a ``torch.amp.GradScaler``, for fp16; backs off as it would by itself.
        max_norm: gradients are clipped to this norm; None for no clipping.
        policy: how a step is judged.
        run_dir: where the run and its checkpoints are written; None for nowhere.
        forward: ``forward(batch) -> loss``; lets a bad step be run again and explained, with ``guard.forward``.
        describe: ``describe(batch) -> [text, ...]``, a text for each row: goes to the incident of a bad step. With
            pairs ``(group, text)`` batches are counted by group, and it is called for every batch.
        ema: averaged weights, which go back and come back with the rest.
        tied: in a pipeline, parameters of which another stage holds a copy, under the same name there: counted once.
        console: where lines go when something happens: a rich console or anything with ``print``; stderr by default.

    Raises:
        UsageError: the parts do not fit together; the message says which and what to do.
    """

    _driven: ClassVar[bool] = False
    """Whether a framework clips, steps, moves the schedule and writes checkpoints; see ``guard/driven.py``."""

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
        # Which scheduler a framework moves, and how, is its own business.
        if policy.replay_every and forward is None and not self._driven:
            raise UsageError(
                f"Policy(replay_every={policy.replay_every}) needs to know the forward pass",
                fix="build it with Guard(..., forward=lambda batch: model(**batch).loss) and call guard.forward(batch)",
            )
        check_construction(model, optimizer, None if self._driven else scheduler, scaler, policy, run_dir, console)
        if not self._driven:
            check_engine(model)
        self._model = model
        self._optimizer = optimizer
        scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._max_norm = check_max_norm(max_norm)
        self._judge = Judge(policy, self._max_norm)
        roster = take_roster(model, optimizer, partial=self._driven)
        check_weights(roster, scaler)
        self._ranks = Ranks(model, roster)
        self._desync = DesyncWatch(self._ranks, policy.desync_steps)
        cut = LearningRateCut(policy)
        self._precision = PrecisionControl(policy.precision, roster.device)
        self._shop = Workshop(
            optimizer=optimizer,
            schedule=Schedule(None if self._driven else scheduler, optimizer),
            buffers=RunningBuffers(model),
            scaler=scaler,
            max_norm=self._max_norm,
            roster=roster,
            judge=self._judge,
            cut=cut,
            many=self._ranks.world > 1,
            driven=self._driven,
            # On the CPU a pass over the gradients is cheap, and the plain loop's bits are worth more.
            fold_clip=roster.device.type == "cuda" and not switched_off(),
        )
        self._step = 0
        self._expected: dict[int, str] = {}
        """New phases that were announced, by their first step."""
        self._intake = Intake()
        self._passes = Passes(roster.device.type)
        self._groups = Groups(describe)
        self._forward = ForwardPass(forward, self._precision, self._intake, self._passes, describe, self._groups)
        watches = policy.mode == "watch"
        self._reader = Reader(model, self._shop, self._intake, policy.sample_every, watches=watches)
        self._loaders = Loaders(
            max_errors=policy.max_loader_errors,
            tell=lambda event, details: self._recorder.trouble(
                event, self._step, data_event_in_words(event, details), **details
            ),
            agree=self._ranks.agree,
            stop=lambda error: self._life.stop(
                error, self._step, f"training was stopped after step {self._step}: {error.message}"
            ),
        )
        self._recorder = Recorder(
            run_dir,
            console,
            rank=self._ranks.rank,
            report=policy.report,
            groups=self._groups,
            unlearned=self._loaders.unlearned,
        )
        self._early = EarlyWatch(model, self._recorder, self._reader.due, first=self._ranks.first)
        self._replays = Replays(
            policy.replay_every,
            model,
            self._ranks,
            self._recorder,
            forward=self._forward,
            passes=self._passes,
            buffers=self._shop.buffers,
        )
        self._own = OwnState(self._shop, self._judge, self._intake, self._loaders, cut, self._precision)
        parts = TrainingParts(
            model=model,
            optimizer=optimizer,
            scheduler=stateful(scheduler),
            scaler=scaler,
            ema=ema,
            keep_frozen=policy.keep_frozen,
            writes=self._ranks.writers,
        )
        comparison = Comparison(parts, self._ranks, self._forward, self._passes)
        self._recovery = Recovery(
            parts,
            policy,
            self._ranks,
            cut=cut,
            precision=self._precision,
            loaders=self._loaders,
            recorder=self._recorder,
            rerun=lambda: comparison.possible,
            notes=lambda: {"guard": self._remembered().to_json(), "batches": self._loaders.positions},
        )
        self._judge.options = self._recovery.options
        self._incidents = Incidents(
            parts,
            policy,
            self._ranks,
            self._recorder,
            precision=self._precision,
            forward=self._forward,
            passes=self._passes,
            known_good=self._recovery.known_good,
            evidence=self._replays.evidence.get,
        )
        if policy.mode == "watch" and forward is not None and roster.device.type == "cpu":
            self._shop.alarm = lambda heard: self._incidents.look(heard, self._step, taken=False)
        on_probation = OnProbation(self._judge, self._recovery, comparison, self._recorder, self._incidents)
        self._after = Consequences(
            self._shop, self._judge, self._recovery, self._recorder, self._incidents, on_probation
        )
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

    # -- the loop ----------------------------------------------------------------------------------------------------

    def forward(self, batch: Any) -> Tensor:
        """Run the ``forward`` given at construction on a batch, in the guard's precision.

        What is needed to run it again is remembered until the step is known to be good: a bad step is captured in
        ``run_dir/incidents`` and explained. For that ``forward`` is called again, so it should do nothing but compute.
        """
        self._life.check_open()
        self._shop.buffers.begin()
        if torch.is_grad_enabled():
            self._replays.expect(self._step + 1, self._shop.roster)
        return self._forward(batch)

    def autocast(self) -> AbstractContextManager[Any]:
        """The context for a forward pass in the guard's present precision; does nothing unless the policy names one."""
        return self._precision.autocast()

    def batches(self, loader: Iterable[Any]) -> Batches:
        """The batches of a loader, one epoch an iteration, from where the run stands.

        What fails to load is passed over within ``Policy.max_loader_errors``, and so is what led to a rollback. A
        resumed run goes on in the middle of the epoch. For the same loader the same object is returned.
        """
        self._life.check_open()
        return self._loaders.wrap(loader)

    def backward(
        self, loss: Tensor, *, parts: Mapping[str, Tensor | float] | None = None, retain_graph: bool = False
    ) -> None:
        """Add the gradients of a loss to those of the step. Call it once for each batch, or loss, of the step.

        Arguments:
            loss: a scalar; under accumulation already divided by the number of batches.
            parts: losses that ``loss`` is made of, logged apart so that the guilty one is known.
            retain_graph: keep the graph for a further backward pass through it.
        """
        self._life.check_open()
        if self._stages is not None:
            raise UsageError(
                "guard.backward() in a pipeline: the schedule runs backward",
                fix="losses = []; schedule.step(..., losses=losses); guard.step(losses)",
            )
        check_loss(loss)
        check_parts(parts or {})
        scaler = self._shop.scaler
        scaled = loss if scaler is None else scaler.scale(loss)
        self._progress.at(Phase.BACKWARD, self._step + 1)
        try:
            scaled.backward(retain_graph=retain_graph)
        except BaseException as error:
            # Gradients of half a backward pass must not leak into the next step.
            self._start_afresh()
            check_first_backward(error)
            raise
        self._take_in(full_value(loss), parts or {})

    def step(
        self,
        loss: Tensor | Sequence[Tensor] | None = None,
        *,
        parts: Mapping[str, Tensor | float] | None = None,
    ) -> None:
        """Take one step, or refuse it.

        Arguments:
            loss: backward is run on it first; leave it out after ``guard.backward``. In a pipeline the losses of the
                microbatches, as the schedule has left them; a rank without the last stage has none.
            parts: as in :meth:`backward`.

        Raises:
            TrainingDiverged: the budget for refused steps is spent and nothing else has helped (``BadStep`` under a
                strict policy). No refused step has touched the weights.
        """
        self._life.check_open()
        if self._stages is not None:
            self._take_in(self._stages.loss_of(loss, parts), {})
        elif loss is not None:
            self.backward(cast(Tensor, loss), parts=parts)
        gathered = check_gathered(self._intake.loss, stray=parts if loss is None else None)
        scaler = self._shop.scaler
        try:
            if self._reader.renew_roster():
                self._recovery.renew()
            self._recorder.launch(self._step, self._launch_record)
            first = not self._judge.memory.ladder.accepted
            found = self._run_again()
            self._ranks.settle(self._shop.roster)
            own = self._reader.read(self._step + 1, gathered, first=first)
            reading = marked(self._meet(own), found)
            self._step = reading.step
            self._passes.close(self._step)
            self._groups.close(self._step)
            sampler = self._reader.sampler(reading)
            heard = self._after.gate.take(reading)
            if sampler is not None:
                self._tell_sample(sampler.finish())
            if reading.loss_scale is not None and scaler is not None:
                scaler.update()
        except BaseException:
            # Neither gradients nor the scaler's notes of a failed step may leak into the next one.
            self._start_afresh()
            if scaler is not None:
                with suppress(AssertionError):
                    scaler.update()
            raise
        self._start_afresh()
        self._take_note(heard)
        self._between_steps()
        self._progress.at(Phase.OUTSIDE, self._step + 1)

    def graphed(self) -> GraphedStep:
        """The step as a CUDA graph: ``step = guard.graphed()``, then ``loss = step(batch)`` once for each batch.

        Forward, backward, verdict and update are launched as a whole, the veto inside. It needs a CUDA device, a fused
        optimizer whose learning rate is a tensor there, the ``forward`` given at construction, and batches of one form;
        a batch of another form is taken without the graph. Whatever ``forward`` does on the host is done only once.

        Raises:
            UsageError: one of these is missing; the message says which.
        """
        self._life.check_open()
        return graphed(self)

    def expect(self, what: str, *, step: int | None = None) -> None:
        """Announce a new phase, so that it is not taken for trouble: other data, other loss weights, a higher rate.

        What was usual before it no longer counts. Without an announcement a new phase is recognised by itself, some
        steps later.

        Arguments:
            what: for the record, such as `new data`.
            step: the first step of the phase; the next one if it is left out.
        """
        self._life.check_open()
        if step is not None and step > self._step + 1:
            self._expected[step] = what
        else:
            self._begin_phase(what)

    def flush(self) -> None:
        """Wait for the numbers of all steps so far and act on them."""
        self._life.check_open()
        self._take_note(self._after.gate.drain(), wait=True)

    def checkpoint(self) -> None:
        """Save the training now. It is copied when this returns, and written, verified and named meanwhile.

        What became of it is an event. Trouble with the disk never stops the training.
        """
        saving = self._checkpoints()
        if self._intake.loss is not None:
            raise OrderError(
                "guard.checkpoint() between guard.backward() and guard.step(): gathered gradients are not saved",
                fix="call it after guard.step()",
            )
        self.flush()
        self._recovery.checkpoint(self._step, saving)

    def resume(self) -> int:
        """Continue from the newest good checkpoint in the run directory, if there is one.

        Call it before the first step. Everything comes back: weights, optimizer, schedule, scaler, random numbers, the
        position of each loader of ``guard.batches``, and what the guard remembers.

        Returns:
            The last step that it contains; 0 when there is none.

        Raises:
            StateError: it is of another architecture (the message names what differs), or cannot be read. Nothing was
                changed.
        """
        saving = self._checkpoints()
        if self._step or self._intake.batches:
            raise OrderError("guard.resume() after the first step", fix="call it right after building the guard")
        found = saving.resume()
        if found is None:
            return 0
        self._recall(found.remembered)
        if found.ledger:
            self._loaders.load_ledger(found.ledger)
        self._loaders.stand_at(found.positions)
        return self._step

    def close(self) -> None:
        """Wait for what is under way, write everything, say what the run came to. Closing twice is fine."""
        if self._life.over:
            return
        try:
            self._take_note(self._after.gate.drain(), wait=True)
        finally:
            if not self._life.over:
                self._life.finish("closed", self._step, "the guard was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif not self._life.over:
            self._life.hurry()
            # What went wrong in the loop is what the person must see; late news must not cover it up.
            with suppress(Exception):
                self._take_note(self._after.gate.drain(), wait=True)
        if error is not None and not self._life.over:
            if isinstance(error, Exception):
                # Most loops that fail do so in their first pass: there is no step to tell of, but an error.
                with suppress(Exception):
                    self._recorder.launch(self._step, self._launch_record)
            reason = f"the training loop ended with {type(error).__name__}"
            self._life.finish("failed", self._step, reason, error=f"{error}")

    # -- what can be asked -------------------------------------------------------------------------------------------

    @property
    def decisions(self) -> list[Decision]:
        """The recent decisions, oldest first; on an accelerator those of the last few steps may still be under way."""
        return list(self._recorder.decisions)

    @property
    def gradient_norms(self) -> dict[str, float]:
        """Norm of each parameter's raw gradient at the last known step; parameters without a gradient are left out."""
        return self._after.norms

    def describe(self) -> str:
        """What is guarded, how, and what it costs, in a few lines."""
        saved = "checkpoints are the framework's own" if self._driven else "no run_dir"
        kept = f"{self._recovery.in_words()}; {saved if self._saving is None else self._saving.in_words()}"
        ranks = f"; {self._ranks.world} ranks" if self._ranks.world > 1 else ""
        ranks += "" if self._stages is None else f", here {self._stages.in_words()} of the pipeline"
        return (
            f"{training_in_words(self._model, self._shop)}\n"
            f"gate: {self._after.gate.sentence} ({self._after.cost}){self._reader.in_words()}\n"
            f"{policy_in_words(self._judge.policy)}\n"
            f"recovery: {kept}; {self._precision.in_words()}{ranks}{self._replays.in_words()}"
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything the guard remembers, as plain data; waits for what is under way."""
        if not self._life.over:
            self.flush()
        return self._remembered().to_json()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. Nothing is changed if it does not fit.

        Raises:
            StateError: it is of another version, or not a guard's state at all.
        """
        self._life.check_open()
        remembered = Remembered.from_json(state)
        self.flush()
        self._recall(remembered)

    # -- inside a step -----------------------------------------------------------------------------------------------

    def _take_in(self, loss: Tensor, parts: Mapping[str, Tensor | float]) -> None:
        whole = {name: full_value(part) if isinstance(part, Tensor) else part for name, part in parts.items()}
        self._intake.add(loss, whole)
        self._passes.trained(loss)
        self._loaders.trained(self._step + 1)

    def _run_again(self) -> Mismatch | None:
        """What a replay of the step found, which all ranks agree on; this one has arrived, for the watchdog."""
        self._progress.at(Phase.MEETING, self._step + 1)
        return self._replays.compare(self._step + 1)

    def _meet(self, own: Reading) -> Reading:
        """The reading of all ranks, for which this one waits."""
        reading = self._ranks.combine(own, self._shop.roster)
        self._progress.at(Phase.AFTER, reading.step)
        return reading

    def _start_afresh(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._intake.clear()
        self._passes.forget()
        self._groups.forget()
        self._replays.forget()
        self._early.forget()

    def _tell_sample(self, sample: Sample) -> None:
        self._recorder.post(sample, self._shop.roster.names)
        self._early.post(sample)

    def _take_note(self, heard: list[Heard], *, wait: bool = False) -> None:
        self._recorder.collect(wait=wait)
        self._early.collect(wait=wait)
        for finding in self._desync.collect(wait=wait):
            self._recorder.find(finding, self._step)
        if (decision := self._after.follow(heard, self._step)) is not None:
            found = self._incidents.found_on(decision)
            raise self._life.stop(stopped(decision, found), self._step, f"training was stopped at {where(decision)}")

    def _begin_phase(self, what: str) -> None:
        self.flush()
        self._after.begin_phase()
        self._recorder.announce("new-phase", self._step, f"new phase from here on: {what}", expected=True, reason=what)

    def _between_steps(self) -> None:
        self._desync.look(self._step, self._shop.roster)
        self._early.expect(self._step + 1)
        if (slowest := self._progress.slowest(self._step)) is not None:
            self._recorder.pace(slowest, self._progress.host_of(slowest.rank), self._step)
        if (what := self._expected.pop(self._step + 1, None)) is not None:
            self._begin_phase(what)
        if self._saving is not None:
            self._saving.tell()
            if self._saving.due(self._step):
                self.checkpoint()
                return
        self._recovery.snapshot_if_due(self._step)

    def _remembered(self) -> Remembered:
        return self._own.gather(self._step)

    def _recall(self, remembered: Remembered) -> None:
        self._step = remembered.step
        self._own.give_back(remembered)
        memory = remembered.memory
        self._after.continue_with(replace(memory, probation=resumed(memory.probation, self._judge.policy)))

    def _checkpoints(self) -> Saving:
        self._life.check_open()
        if self._saving is None:
            raise UsageError("checkpoints need a place", fix="build it with Guard(..., run_dir='runs/first')")
        return self._saving

    def _launch_record(self) -> dict[str, Any]:
        first = self._intake.batch_shape
        record = launch_record(
            self._model, self._optimizer, self._shop.roster, self._judge.policy, self._max_norm, now(), first
        )
        return record | {"ranks": [machine.to_json() for machine in self._ranks.machines]}
