"""The guard: refuses a bad step before it touches a parameter, a moment or the schedule."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.core.decision import Action, Code, Decision
from stayfinite.core.judge import Memory
from stayfinite.core.policy import Policy
from stayfinite.errors import (
    BadStep,
    GuardClosed,
    LossError,
    OrderError,
    StateError,
    TrainingDiverged,
    UsageError,
)
from stayfinite.guard.buffers import RunningBuffers
from stayfinite.guard.checks import (
    check_alone,
    check_kinds,
    check_loss,
    check_max_norm,
    check_optimizer,
    check_parts,
    check_scheduler,
    check_weights,
)
from stayfinite.guard.choice import choose_gate
from stayfinite.guard.gates import Heard, Workshop
from stayfinite.guard.journal import now
from stayfinite.guard.judge import Judge
from stayfinite.guard.launch import launch_record
from stayfinite.guard.recorder import Recorder
from stayfinite.guard.schedule import Schedule, Scheduler
from stayfinite.measure.gradients import measure_gradients
from stayfinite.measure.intake import Intake
from stayfinite.measure.reading import Reading, highest_lr
from stayfinite.measure.roster import take_roster
from stayfinite.measure.sample import Sampler
from stayfinite.report.terminal import Console

DEFAULT_POLICY = Policy()
STATE_VERSION = 1


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
        model: the module that is trained; its parameters' names are used in messages.
        optimizer: holds every trainable parameter of the model.
        scheduler: a learning-rate scheduler that moves once a step; stands still at a refused one.
        scaler: a ``torch.amp.GradScaler``, for fp16; backs off as it would by itself.
        max_norm: gradients are clipped to this norm; None for no clipping.
        policy: how a step is judged.
        run_dir: where run.json, steps.jsonl, events.jsonl and layers.npz are written; None for nowhere.
        forward: ``forward(batch) -> loss``; lets ``guard.forward`` remember the batch of a bad step.
        console: where lines go when something happens: a rich console or anything with ``print``; stderr by default.

    Raises:
        UsageError: the parts do not fit together; the message says which and what to do.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: Scheduler | None = None,
        scaler: GradScaler | None = None,
        max_norm: float | None = 1.0,
        policy: Policy = DEFAULT_POLICY,
        run_dir: str | os.PathLike[str] | None = None,
        forward: Callable[[Any], Tensor] | None = None,
        *,
        console: Console | None = None,
    ) -> None:
        check_kinds(model, scaler, policy, console)
        check_alone(policy)
        check_optimizer(optimizer)
        check_scheduler(scheduler, optimizer)
        self._model = model
        self._optimizer = optimizer
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._max_norm = check_max_norm(max_norm)
        self._forward = forward
        self._judge = Judge(policy, self._max_norm)
        self._shop = Workshop(
            optimizer=optimizer,
            schedule=Schedule(scheduler, optimizer),
            buffers=RunningBuffers(model),
            scaler=self._scaler,
            max_norm=self._max_norm,
            roster=take_roster(model, optimizer),
            judge=self._judge,
        )
        check_weights(self._shop.roster, self._scaler)
        self._held = self._trained()
        self._gate, self._cost = choose_gate(self._shop, policy, self._judge.memory.ladder.spikes)

        self._step = 0
        self._intake = Intake()
        self._over = ""
        self._norms: dict[str, float] = {}
        self._recorder = Recorder(run_dir, console)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def forward(self, batch: Any) -> Tensor:
        """Run the ``forward`` given at construction on a batch, and remember the batch for messages."""
        self._check_open()
        if self._forward is None:
            raise UsageError(
                "guard.forward() needs to know the forward pass",
                fix="build it with Guard(..., forward=lambda batch: model(**batch).loss), or compute the loss yourself",
            )
        self._intake.see(batch)
        return self._forward(batch)

    def backward(
        self, loss: Tensor, *, parts: Mapping[str, Tensor | float] | None = None, retain_graph: bool = False
    ) -> None:
        """Add the gradients of a loss to those of the step. Call it once for each batch, or loss, of the step.

        Arguments:
            loss: a scalar; under accumulation already divided by the number of batches.
            parts: losses that ``loss`` is made of, logged apart so that the guilty one is known.
            retain_graph: keep the graph for a further backward pass through it.
        """
        self._check_open()
        check_loss(loss)
        check_parts(parts or {})
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        try:
            scaled.backward(retain_graph=retain_graph)
        except BaseException:
            # Gradients of half a backward pass must not leak into the next step.
            self._start_afresh()
            raise
        self._intake.add(loss, parts or {})

    def step(self, loss: Tensor | None = None, *, parts: Mapping[str, Tensor | float] | None = None) -> None:
        """Take one step, or refuse it.

        Arguments:
            loss: backward is run on it first; leave it out after ``guard.backward``.
            parts: as in :meth:`backward`.

        Raises:
            TrainingDiverged: the budget for refused steps is spent (``BadStep`` under a strict policy). The weights are
                those of the last accepted step.
        """
        self._check_open()
        if loss is not None:
            self.backward(loss, parts=parts)
        elif parts:
            raise UsageError(
                "guard.step(parts=...) without the loss that they are parts of",
                fix="give parts to guard.backward(loss, parts=...), or call guard.step(loss, parts=...)",
            )
        if self._intake.loss is None:
            raise OrderError(
                "guard.step() without a loss, and no guard.backward(loss) before it",
                fix="call guard.step(loss), or guard.backward(loss / k) k times and then guard.step()",
            )
        try:
            self._renew_roster()
            self._recorder.launch(self._step, self._launch_record)
            reading = self._read(self._intake.loss)
            self._step = reading.step
            sampler = self._sampler(reading)
            heard = self._gate.take(reading)
            if sampler is not None:
                self._recorder.post(sampler.finish(), self._shop.roster.names)
            if reading.loss_scale is not None and self._scaler is not None:
                self._scaler.update()
        except BaseException:
            # Neither gradients nor the scaler's notes of a failed step may leak into the next one.
            self._start_afresh()
            if self._scaler is not None:
                with suppress(AssertionError):
                    self._scaler.update()
            raise
        self._start_afresh()
        self._take_note(heard)

    def flush(self) -> None:
        """Wait for the numbers of all steps so far and act on them."""
        self._check_open()
        self._take_note(self._gate.drain(), wait=True)

    def close(self) -> None:
        """Wait for what is under way, write everything, say what the run came to. Closing twice is fine."""
        if self._over:
            return
        try:
            self._take_note(self._gate.drain(), wait=True)
        finally:
            if not self._over:
                self._finish("closed", "the guard was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif not self._over:
            # What went wrong in the loop is what the person must see; late news must not cover it up.
            with suppress(Exception):
                self._take_note(self._gate.drain(), wait=True)
        if error is not None and not self._over:
            self._finish("failed", f"the training loop ended with {type(error).__name__}", error=f"{error}")

    # -- what can be asked -------------------------------------------------------------------------------------------

    @property
    def decisions(self) -> list[Decision]:
        """The recent decisions, oldest first; on an accelerator those of the last few steps may still be under way."""
        return list(self._recorder.decisions)

    @property
    def gradient_norms(self) -> dict[str, float]:
        """Norm of each parameter's raw gradient at the last known step; parameters without a gradient are left out."""
        return dict(self._norms)

    def describe(self) -> str:
        """What is guarded, how, and what it costs, in a few lines."""
        roster, policy = self._shop.roster, self._judge.policy
        numbers = sum(parameter.numel() for parameter in roster.parameters)
        dtypes = ", ".join(sorted({str(dtype).removeprefix("torch.") for _, dtype in roster.places}))
        clip = "no clipping" if self._max_norm is None else f"clipped to {self._max_norm:g}"
        scaler = ", fp16 scaler" if self._scaler is not None else ""
        limit = "no limit" if policy.max_vetoes is None else f"{policy.max_vetoes} in all"
        return (
            f"guard over {type(self._model).__name__}: {len(roster.names)} tensors, {numbers:,} parameters, {dtypes}\n"
            f"optimizer {type(self._optimizer).__name__}, {clip}{scaler}\n"
            f"gate: {self._gate.sentence} ({self._cost})\n"
            f"policy: {policy.mode}; spikes beyond {policy.sigmas:g} sigma over {policy.window} steps; "
            f"stops after {policy.max_vetoes_in_a_row} vetoes in a row or {limit}"
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything the guard remembers, as plain data; waits for what is under way."""
        if not self._over:
            self.flush()
        return {
            "version": STATE_VERSION,
            "step": self._step,
            "batch": self._intake.batches,
            "memory": self._judge.memory.to_json(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state. Nothing is changed if it does not fit.

        Raises:
            StateError: it is of another version, or not a guard's state at all.
        """
        self._check_open()
        try:
            version, step, batch = state["version"], int(state["step"]), int(state["batch"])
            memory = Memory.from_json(state["memory"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(
                f"this is not a guard's state: {type(error).__name__}: {error}",
                fix="pass what guard.state_dict() returned",
            ) from error
        if version != STATE_VERSION:
            raise StateError(
                f"the guard's state has version {version!r}, this stayfinite reads {STATE_VERSION}",
                fix="resume with the stayfinite that wrote it, or start the guard fresh",
            )
        self.flush()
        self._step, self._intake.batches, self._judge.memory = step, batch, memory
        self._shop.buffers.keep()
        self._gate, self._cost = choose_gate(self._shop, self._judge.policy, memory.ladder.spikes)

    # -- inside a step -----------------------------------------------------------------------------------------------

    def _read(self, loss: Tensor) -> Reading:
        scale: Tensor | None = None
        if self._scaler is not None and any(p.grad is not None for p in self._shop.roster.parameters):
            scale = self._scaler._get_scale_async()
            scale = None if scale is None else scale.clone()
            self._scaler.unscale_(self._optimizer)
        gradients = measure_gradients(self._shop.roster)
        if not gradients.indices and not self._judge.memory.ladder.accepted:
            self._start_afresh()
            raise LossError(
                "backward() gave no gradient to any parameter of the optimizer",
                fix="the loss does not depend on the model that is trained: compute it from this model's output",
            )
        return Reading(
            step=self._step + 1,
            loss=loss,
            gradients=gradients,
            lr=highest_lr(self._optimizer),
            loss_scale=scale,
            parts=self._intake.parts,
            batch=self._intake.batches,
            batch_shape=self._intake.batch_shape,
        )

    def _sampler(self, reading: Reading) -> Sampler | None:
        every = self._judge.policy.sample_every
        if not every or not (reading.step % every == 0 or reading.step == 1):
            return None
        return Sampler(self._shop.roster, reading.step, reading.gradients)

    def _start_afresh(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._intake.clear()

    def _take_note(self, heard: list[Heard], *, wait: bool = False) -> None:
        self._recorder.collect(wait=wait)
        for each in heard:
            self._recorder.note(each.judgement)
            self._norms = each.opened.norms
        for each in heard:
            if each.judgement.decision.action is Action.STOP:
                self._stop(each.judgement.decision)

    def _stop(self, decision: Decision) -> None:
        signals = decision.signals
        where = f"step {signals.step}, batch {signals.batch}" + (
            f" ({signals.batch_shape})" if signals.batch_shape else ""
        )
        self._finish("stopped", f"training was stopped at {where}")
        kind = BadStep if decision.code is Code.STRICT else TrainingDiverged
        raise kind(
            f"training stopped at {where}: {decision.reason}",
            step=decision.step,
            code=decision.code,
            fix="no refused step has touched the weights. Look at the named batch and parameters; under fp16 run the "
            "same batch in fp32 or bf16, where it is finite if fp16 is the cause; otherwise lower the learning rate or "
            "lengthen the warm-up",
        )

    # -- beginning and end -------------------------------------------------------------------------------------------

    def _launch_record(self) -> dict[str, Any]:
        return launch_record(self._model, self._optimizer, self._shop.roster, self._judge.policy, self._max_norm, now())

    def _finish(self, event: str, reason: str, **details: str) -> None:
        self._over = reason
        self._recorder.finish(event, self._step, reason, **details)

    def _check_open(self) -> None:
        if self._over:
            raise GuardClosed(
                f"this guard takes no further step: {self._over}",
                fix="build a new Guard, and load_state_dict() if it is to continue where this one ended",
            )

    def _renew_roster(self) -> None:
        # Which ones, not how many: one layer may be thawed while another is frozen.
        if (trained := self._trained()) == self._held:
            return
        self._shop.roster = take_roster(self._model, self._optimizer)
        self._held = trained

    def _trained(self) -> list[int]:
        return [id(p) for group in self._optimizer.param_groups for p in group["params"] if p.requires_grad]
