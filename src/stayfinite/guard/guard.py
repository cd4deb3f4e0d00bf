"""The guard: refuses a bad step before it changes a parameter, a moment or the schedule."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Self, cast

import torch
from torch import Tensor

from stayfinite.core.decision import Decision
from stayfinite.core.html import panel
from stayfinite.core.stalls import Phase
from stayfinite.errors import OrderError, UsageError
from stayfinite.guard import checks
from stayfinite.guard.feeding.batches import Batches
from stayfinite.guard.graphing.graphed import GraphedStep, graphed
from stayfinite.guard.machinery import Machinery
from stayfinite.guard.recovering.remembered import read_remembered
from stayfinite.guard.telling.live import curves_html
from stayfinite.guard.words import policy_in_words, training_in_words
from stayfinite.state.likeness import refusing_odd_values
from stayfinite.state.shards import full_value


class Guard(Machinery):
    """Guards a training loop.

    Examples:
        >>> guard = Guard(model, optimizer, scheduler=scheduler, max_norm=1.0, run_dir="runs/first")
        >>> for batch in loader:
        ...     loss = compute_loss(model, batch)
        ...     guard.step(loss)  # backward, measure, clip, gate, optimizer, scheduler, zero_grad
        >>> guard.close()

    With gradient accumulation call ``guard.backward(loss / k)`` k times and then ``guard.step()``.

    Arguments:
        model: the module to train; messages use its parameter names. In a pipeline the
            ``PipelineStage`` of this rank, or the list of them; see ``docs/integrations/pipelines.md``.
        optimizer: holds every trainable parameter of the model.
        scheduler: a learning-rate scheduler that steps once per step; not at a refused one.
        scaler: a ``torch.amp.GradScaler``, for fp16; backs off as usual.
        max_norm: gradient clipping norm; None for no clipping.
        policy: how a step is judged.
        run_dir: where the run and its checkpoints are written; None for nowhere.
        forward: ``forward(batch) -> loss``; allows a bad step to be run again and explained; call ``guard.forward``.
        describe: ``describe(batch) -> [text, ...]``, one text per row, for the incident of a bad step. With pairs
            ``(group, text)``, batches are counted by group, and it is called for every batch.
        ema: averaged weights, saved and restored with the rest.
        tied: in a pipeline, parameters that another stage holds too, by the same name there; counted once.
        console: where lines are printed: a rich console or anything with ``print``; stderr by default.

    Raises:
        UsageError: the parts do not fit together; the message says which and what to do.
    """

    # -- the loop ----------------------------------------------------------------------------------------------------

    def forward(self, batch: Any) -> Tensor:
        """Run the ``forward`` given at construction on a batch, in the guard's precision.

        What a re-run needs is kept until the step is known to be good: a bad step is captured in ``run_dir/incidents``
        and explained. That calls ``forward`` again, so it should only compute.
        """
        self._life.check_open()
        self._setup.buffers.begin()
        if torch.is_grad_enabled():
            self._replays.expect(self._step + 1, self._setup.roster)
        return self._forward(batch)

    def autocast(self) -> AbstractContextManager[Any]:
        """Context for a forward pass in the guard's current precision; does nothing unless the policy names one."""
        return self._precision.autocast()

    def batches(self, loader: Iterable[Any]) -> Batches:
        """Batches of a loader, one epoch per iteration, from the run's position.

        Batches that fail to load are skipped, up to ``Policy.max_loader_errors``, and so are those that led to a
        rollback. A resumed run continues in the middle of the epoch. The same loader always returns the same object.
        """
        self._life.check_open()
        return self._loaders.wrap(loader)

    def backward(
        self,
        loss: Tensor,
        *,
        parts: Mapping[str, Tensor | float] | None = None,
        signals: Mapping[str, Tensor | float] | None = None,
        retain_graph: bool = False,
    ) -> None:
        """Add the gradients of a loss to those of the step. Call it once per batch, or loss, of the step.

        Arguments:
            loss: a scalar; under accumulation already divided by the number of batches.
            parts: terms of ``loss``, logged separately to identify a bad one.
            signals: other numbers of the batch, by name: ``kl``, ``entropy``, ``reward``, ... as made by
                ``stayfinite.rl.signals``. Averaged over batches; for ``_max`` the highest. Recorded and judged, but no
                step is refused for one.
            retain_graph: keep the graph for another backward pass.
        """
        self._life.check_open()
        if self._stages is not None:
            raise UsageError(
                "guard.backward() is not for pipelines: the schedule runs backward",
                fix="losses = []; schedule.step(..., losses=losses); guard.step(losses)",
            )
        checks.check_loss(loss)
        checks.check_parts(parts or {})
        self._hear(signals)
        scaler = self._setup.scaler
        scaled = loss if scaler is None else scaler.scale(loss)
        self._progress.at(Phase.BACKWARD, self._step + 1)
        try:
            scaled.backward(retain_graph=retain_graph)
        except BaseException as error:
            # Gradients of a partial backward pass must not leak into the next step.
            self._start_afresh()
            checks.check_first_backward(error)
            raise
        self._take_in(full_value(loss), parts or {})

    def step(
        self,
        loss: Tensor | Sequence[Tensor] | None = None,
        *,
        parts: Mapping[str, Tensor | float] | None = None,
        signals: Mapping[str, Tensor | float] | None = None,
    ) -> None:
        """Take one step, or refuse it.

        Arguments:
            loss: backward runs on it first; omit it after ``guard.backward``. In a pipeline, the microbatch losses from
                the schedule; a rank without the last stage has none.
            parts: as in :meth:`backward`.
            signals: as in :meth:`backward`; with several ranks each judges its own, and rank 0 writes.

        Raises:
            TrainingDiverged: the budget for refused steps is used up and nothing else helped (``BadStep`` with a strict
                policy). No refused step has changed the weights.
        """
        self._life.check_open()
        if self._stages is not None:
            self._take_in(self._stages.loss_of(loss, parts), {})
            self._hear(signals)
        elif loss is not None:
            self.backward(cast(Tensor, loss), parts=parts, signals=signals)
        else:
            self._hear(signals)
        gathered = checks.check_gathered(self._collector.loss, stray=parts if loss is None else None)
        scaler = self._setup.scaler
        try:
            reading, sampler, decided = self._weigh(gathered)
            if sampler is not None:
                self._tell_sample(sampler.finish())
            if reading.loss_scale is not None and scaler is not None:
                scaler.update()
        except BaseException:
            # Neither gradients nor scaler state of a failed step may leak into the next one.
            self._start_afresh()
            if scaler is not None:
                with suppress(AssertionError):
                    scaler.update()
            raise
        self._start_afresh()
        self._take_note(decided)
        self._between_steps()
        self._progress.at(Phase.OUTSIDE, self._step + 1)

    def graphed(self) -> GraphedStep:
        """The step as a CUDA graph: ``step = guard.graphed()``, then ``loss = step(batch)`` for each batch.

        Forward, backward, verdict and update are launched as a whole. Needs a CUDA device, a fused optimizer with a
        tensor learning rate on it, the ``forward`` given at construction, and batches of one form; other batches run
        without the graph. Host code in ``forward`` runs only once.

        Raises:
            UsageError: one of these is missing; the message says which.
        """
        self._life.check_open()
        return graphed(self, self._whole_step)

    def _whole_step(self, batch: Any) -> Tensor:
        loss = self.forward(batch)
        self.step(loss)
        return loss

    def expect(self, what: str, *, step: int | None = None) -> None:
        """Announce a new phase, so it is not mistaken for trouble: other data, other loss weights, a higher rate.

        Earlier levels no longer count. Without an announcement a new phase is detected automatically, some steps later.

        Arguments:
            what: for the record, such as `new data`.
            step: first step of the phase; by default the next one.

        Raises:
            UsageError: the step is not a whole number.
        """
        self._life.check_open()
        first = checks.check_first_step(step)
        if first is not None and first > self._step + 1:
            self._expected[first] = what
        else:
            self._begin_phase(what)

    def cut_rate(self, why: str) -> None:
        """Cut the learning rate for a while, as the policy says (`cut_factor`, `cut_steps`). Call it on all ranks.

        Arguments:
            why: for the record, such as `kl-runaway`.
        """
        self._life.check_open()
        self._catch_up()
        done = self._recovery.begin_cut()
        line = f"learning rate x {done['factor']:g} for {done['steps']} steps: {why}"
        self._recorder.announce("cut", self._step, line, reason=why, **done)

    def roll_back(self, why: str) -> bool:
        """Return to the last known-good state: weights, moments, schedule. Data and random numbers continue.

        Call it on all ranks, between two steps.

        Arguments:
            why: for the record, such as `kl-runaway`.

        Returns:
            Whether there was such a state; if not, nothing has changed.
        """
        self._life.check_open()
        if self._collector.loss is not None:
            raise OrderError(
                ("guard.roll_back() called between guard.backward() and guard.step()"), fix="call it after step()"
            )
        self._catch_up()
        done = self._after.go_back(self._step)
        if done is not None:
            line = f"rolled back from step {done['from_step']} to step {done['to_step']}: {why}"
            self._recorder.announce("rollback", self._step, line, reason=why, **done)
        return done is not None

    @property
    def standing_signs(self) -> frozenset[str]:
        """Causes shown by the signals of the last steps (`kl-runaway`, ...), on rank 0; other ranks do not judge."""
        return self._post_training.standing

    @property
    def steered(self) -> dict[str, Any]:
        """Actions of `rl.Steering` as plain data, saved and resumed with the guard's state."""
        return self._post_training.steered

    def raised_kl(self, kl: float, why: str) -> None:
        """Record that the loop raised its KL coefficient. Call it on all ranks.

        Arguments:
            kl: the new coefficient.
            why: for the record, such as `kl-runaway`.
        """
        self._life.check_open()
        self._recorder.announce("kl-raised", self._step, f"KL coefficient {kl:g} from now on: {why}", reason=why, kl=kl)

    def agree(self, number: int) -> int:
        """Maximum over all ranks. Call it on all ranks."""
        return self._ranks.highest(number)

    def flush(self) -> None:
        """Wait for the numbers of all steps so far and act on them."""
        self._life.check_open()
        self._catch_up()

    def checkpoint(self) -> None:
        """Save the training now. The state is copied on return, then written and verified in the background.

        The result is an event. Disk errors never stop the training.
        """
        saving = self._checkpoints()
        if self._collector.loss is not None:
            raise OrderError(
                (
                    "guard.checkpoint() called between guard.backward() and guard.step(): accumulated gradients are "
                    "not saved"
                ),
                fix="call it after guard.step()",
            )
        self._save(saving)

    def resume(self) -> int:
        """Continue from the newest good checkpoint in the run directory, if there is one.

        Call it before the first step. Restores weights, optimizer, schedule, scaler, random numbers, the position of
        each loader of ``guard.batches``, and the guard's memory.

        Returns:
            The last step that it contains; 0 if there is none.

        Raises:
            StateError: it has another architecture (the message names the differences), or cannot be read. Nothing was
                changed.
        """
        saving = self._checkpoints()
        if self._step or self._collector.batches:
            raise OrderError("guard.resume() called after the first step", fix="call it right after building the guard")
        found = saving.resume()
        if found is None:
            return 0
        with refusing_odd_values(found.path):
            self._recall(found.remembered)
            if found.ledger:
                self._loaders.load_state_dict(found.ledger)
            self._loaders.stand_at(found.positions)
        return self._step

    def close(self) -> None:
        """Wait for pending work, write everything, and print the summary. Closing twice is fine."""
        if self._life.over:
            return
        try:
            self._catch_up()
        finally:
            if not self._life.over:
                # A framework may end within an accumulation of its own.
                self._recorder.dropped = 0 if self._driven else self._collector.waiting
                self._life.finish("closed", self._step, "guard.close() was called")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif not self._life.over:
            self._life.hurry()
            # The user must see the loop's own error; late results must not hide it.
            with suppress(Exception):
                self._catch_up()
        if error is not None and not self._life.over:
            if isinstance(error, Exception):
                # Most failing loops fail in their first pass: there is no step to report, only an error.
                with suppress(Exception):
                    self._recorder.launch(self._step, self._launch_record)
            reason = f"the training loop ended with {type(error).__name__}"
            self._life.finish("failed", self._step, reason, error=f"{error}")

    # -- what can be asked -------------------------------------------------------------------------------------------

    @property
    def decisions(self) -> list[Decision]:
        """Recent decisions, oldest first; on an accelerator those of the last few steps may still be pending."""
        return list(self._recorder.decisions)

    @property
    def gradient_norms(self) -> dict[str, float]:
        """Raw gradient norm per parameter at the last known step; parameters without a gradient are omitted."""
        return self._after.norms

    def describe(self) -> str:
        """What is guarded, how, and at what cost, in a few lines."""
        saved = "checkpoints are the framework's own" if self._driven else "no run_dir"
        kept = f"{self._recovery.in_words()}; {saved if self._saving is None else self._saving.in_words()}"
        ranks = f"; {self._ranks.world} ranks" if self._ranks.world > 1 else ""
        ranks += "" if self._stages is None else f", here {self._stages.in_words()} of the pipeline"
        return (
            f"{training_in_words(self._model, self._setup)}\n"
            f"gate: {self._after.gate.sentence} ({self._after.cost}){self._reader.in_words()}\n"
            f"{policy_in_words(self._judge.policy)}\n"
            f"recovery: {kept}; {self._precision.in_words()}{ranks}{self._replays.in_words()}"
        )

    def __repr__(self) -> str:
        state = "ended" if self._life.over else "open"
        return f"<Guard: {state}, step {self._step:,}, {self._recorder.tally.refused:,} refused>"

    def _repr_html_(self) -> str:
        """Notebook view: curves of the recent steps, and what is guarded."""
        known = self.decisions
        bad = [each.step for each in known if each.refused]
        loss = [(each.step, each.signals.loss) for each in known]
        norm = [(each.step, each.signals.grad_norm) for each in known]
        state = "ended" if self._life.over else "open"
        curves = curves_html(state, self._step, self._recorder.tally.refused, loss, norm, bad)
        return curves + panel("guard", self.describe().split("\n"))

    def state_dict(self) -> dict[str, Any]:
        """The guard's memory as plain data; waits for pending steps."""
        if not self._life.over:
            self.flush()
        return self._own.gather(self._step)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. Nothing changes if it does not fit.

        Raises:
            StateError: another version, or not a guard's state.
        """
        self._life.check_open()
        remembered = read_remembered(state)
        self.flush()
        self._recall(remembered)
