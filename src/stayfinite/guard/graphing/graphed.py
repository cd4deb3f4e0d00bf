"""A guarded step as a CUDA graph: forward, backward, measuring, the verdict and the update, with the veto inside.

The device's part of the step is recorded once and then launched as a whole; the host's part (schedule, records, late
news, the ladder, snapshots) goes on as ever beside it. There are two graphs. Between them the device waits for a
snapshot that is still being copied, which is needed before the weights change and not sooner; and a cut of the learning
rate is put on round the second one only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stayfinite.errors import OptimizerError, UsageError
from stayfinite.guard.checks import check_loss
from stayfinite.guard.gates.gates import DeviceGate
from stayfinite.guard.gates.optimizers import awaits_first_step
from stayfinite.guard.graphing.graphs import CudaTape, Tape, capturable, first_cause
from stayfinite.guard.graphing.static_batch import Form, StaticBatch, form_of
from stayfinite.guard.machinery import Machinery
from stayfinite.measure.fused import Fused
from stayfinite.measure.loss_collector import LossCollector
from stayfinite.measure.reading import Envelope, Reading
from stayfinite.measure.sample import Sample, Sampler
from stayfinite.state.landing import settle

WARM_UP = 3
"""Steps that are taken without a graph first: libraries set themselves up, the optimizer makes its moments."""


def check_graphable(guard: Machinery) -> DeviceGate:
    """The gate of a training whose step can be recorded.

    Raises:
        UsageError: it cannot, and why.
    """
    gate, setup = guard._after.gate, guard._setup
    if guard._forward.function is None:
        raise UsageError(
            "guard.graphed() needs a forward function",
            fix="build it with Guard(..., forward=lambda batch: model(**batch).loss)",
        )
    if not isinstance(gate, DeviceGate):
        raise OptimizerError(
            f"guard.graphed() needs the device gate, not this one: {guard._after.cost}",
            fix="train on a CUDA device, with AdamW(..., fused=True) or another fused optimizer, and gate='auto'",
        )
    if setup.many:
        raise UsageError(
            "guard.graphed() does not support several ranks",
            fix="use guard.step(loss) there",
        )
    if guard._judge.policy.replay_every:
        raise UsageError(
            "guard.graphed() does not support Policy(replay_every=...): a graph draws new random numbers in a re-run",
            fix="use one of them",
        )
    rates = [group["lr"] for group in setup.optimizer.param_groups]
    if not all(isinstance(rate, Tensor) and rate.device == setup.roster.device for rate in rates):
        raise OptimizerError(
            "guard.graphed() needs the learning rate as a tensor: a graph keeps plain numbers",
            fix=f"lr=torch.tensor(1e-3, device={str(setup.roster.device)!r})",
        )
    return gate


class GraphedStep:
    """Takes guarded steps: ``step(batch)`` does what ``guard.step(guard.forward(batch))`` does, and returns the loss.

    The first few steps are taken without a graph, and so is every batch of another form than the one recorded. After a
    rollback, and whenever the guard works with something else than what was recorded, it is recorded anew.

    Arguments:
        guard: whose step.
        tape: records it.
        plainly: takes a step without a graph and returns its loss.
    """

    def __init__(self, guard: Machinery, tape: Tape, plainly: Callable[[Any], Tensor]) -> None:
        check_graphable(guard)
        self._take_plainly = plainly
        self._guard = guard
        self._tape = tape
        self._warm = 0
        self._form: Form | None = None
        self._settings: list[dict[str, Any]] = []
        self._recorded: tuple[Any, ...] = ()
        self._replays: list[Any] = []
        self._static: StaticBatch
        self._gradients: list[Tensor | None] = []
        self._kernels: Fused | None = None
        self._gate: DeviceGate
        self._loss: Tensor
        self._reading: Reading
        self._sampler: Sampler | None = None
        self._sample: Sample | None = None
        self._packed: tuple[Envelope, Tensor]

    def __call__(self, batch: Any) -> Tensor:
        """Take one step, or refuse it, as :meth:`Guard.step` does.

        Returns:
            The loss, on the device; a copy that later steps leave alone.
        """
        guard = self._guard
        guard._life.check_open()
        form = form_of(batch)
        if guard._reader.renew_roster():
            guard._recovery.renew()
        if self._replays and self._recorded != self._present():
            self._let_go()
        early = self._warm < WARM_UP or awaits_first_step(guard._optimizer)
        if early or (self._form is not None and form != self._form):
            if self._warm == 0:
                self._settings = _settings(guard._optimizer)
            self._warm += 1
            return self._plainly(batch)
        if not self._replays:
            self._record(batch)
            self._form, self._recorded = form, self._present()
        return self._replay(batch)

    def _plainly(self, batch: Any) -> Tensor:
        with self._tape.aside():
            return self._take_plainly(batch).detach()

    # -- recording ---------------------------------------------------------------------------------------------------

    def _record(self, batch: Any) -> None:
        guard, setup = self._guard, self._guard._setup
        self._gate = check_graphable(guard)
        self._check_settings()
        self._static = StaticBatch(batch, setup.roster.device)
        # A copy that began before the recording is no part of it.
        settle(setup.optimizer)
        guard._optimizer.zero_grad(set_to_none=True)
        guard._reader.rehearse()
        kept = guard._reader.fused
        # Held as long as the graphs are: they read its tables at every replay.
        guard._reader.fused = self._kernels = None if kept is None else kept.fork()
        try:
            self._replays = self._tape.record(self._measure, self._update)
        except RuntimeError as error:
            if setup.scaler is not None:
                # Half a step leaves the scaler waiting for the other half.
                setup.scaler._per_optimizer_states.pop(id(setup.optimizer), None)
            raise UsageError(
                f"cannot record the step as a CUDA graph: {first_cause(error)}",
                fix=(
                    "forward must not read values (.item(), `if loss > 3`) or create tensors on the host. "
                    "guard.step(guard.forward(batch)) works without a graph. No step was taken"
                ),
            ) from error
        finally:
            guard._reader.fused = kept
            # The graphs go on writing to these; nobody else may get their memory.
            self._gradients = [parameter.grad for parameter in setup.roster.parameters]
            guard._start_afresh()

    def _let_go(self) -> None:
        """The recording is good for nothing any more: its memory, a whole step's, is there for the steps to come."""
        self._replays, self._form, self._warm = [], None, 0
        self._gradients, self._kernels, self._sampler, self._sample = [], None, None, None
        for name in ("_static", "_reading", "_packed", "_loss"):
            self.__dict__.pop(name, None)

    def _measure(self) -> None:
        guard = self._guard
        assert guard._forward.function is not None
        with guard._precision.autocast():
            loss = guard._forward.function(self._static.batch)
        check_loss(loss)
        scaler = guard._setup.scaler
        (loss if scaler is None else scaler.scale(loss)).backward()
        collector = LossCollector()
        collector.add(loss, {})
        assert collector.loss is not None
        self._loss = loss.detach()
        self._reading = guard._reader.read(guard._step + 1, collector.loss, first=False)
        # Torch's own closer look asks the host for memory, which a graph cannot.
        looks = guard._reader.sample_every and self._reading.gradients.facts is not None
        self._sampler = guard._reader.look(self._reading) if looks else None

    def _update(self) -> None:
        with capturable(self._guard._optimizer):
            self._packed = self._gate.act(self._reading)
        self._sample = None if self._sampler is None else self._sampler.finish()
        scaler = self._guard._setup.scaler
        if self._reading.loss_scale is not None and scaler is not None:
            scaler.update()

    def _check_settings(self) -> None:
        """Refuse an optimizer whose settings move: a graph would keep the first ones for ever."""
        now = zip(self._settings, _settings(self._guard._optimizer), strict=False)
        moved = sorted({name for before, after in now for name in after if before.get(name) != after[name]})
        if moved:
            raise OptimizerError(
                f"guard.graphed() needs constant optimizer settings, but {', '.join(moved)} changes: a graph keeps "
                "the first value",
                fix=(
                    "let the schedule change the learning rate only, for example OneCycleLR(..., "
                    "cycle_momentum=False), or use guard.step(guard.forward(batch))"
                ),
            )

    def _present(self) -> tuple[Any, ...]:
        """What a recording is good for: with anything else in its place it has to be made anew."""
        guard = self._guard
        setup = guard._setup
        return (
            id(guard._after.gate), id(setup.roster), id(setup.scaler), setup.max_norm, guard._precision.current,
            guard._model.training,
            setup.roster.parameters[0].data_ptr(), _first_state(setup.optimizer), _settings(setup.optimizer),
            [id(group["lr"]) for group in setup.optimizer.param_groups],
        )  # fmt: skip

    # -- replaying ---------------------------------------------------------------------------------------------------

    def _replay(self, batch: Any) -> Tensor:
        guard, setup = self._guard, self._guard._setup
        measure, update = self._replays
        guard._collector.see(batch)
        guard._groups.see(batch)
        with guard._precision.autocast():
            began = guard._passes.begin(batch)
        self._static.take(batch)
        measure()
        settle(setup.optimizer)
        with setup.cut.applied(setup.optimizer):
            update()
        loss = self._loss.clone()
        guard._passes.end(began, loss)
        guard._passes.trained(loss)
        guard._collector.batches += 1
        guard._loaders.trained(guard._step + 1)
        guard._step += 1
        guard._passes.close(guard._step)
        guard._groups.close(guard._step)
        envelope, values = self._packed
        heard = self._gate.acted(
            replace(
                envelope,
                reading_step=guard._step,
                batch=guard._collector.batches,
                batch_shape=guard._collector.batch_shape,
            ),
            values,
        )
        if self._sample is not None and guard._reader.due(guard._step):
            guard._tell_sample(replace(self._sample, step=guard._step))
        guard._collector.clear()
        guard._take_note(heard)
        guard._between_steps()
        return loss


def _first_state(optimizer: Optimizer) -> int:
    """Where the optimizer's first moment is: elsewhere when somebody has loaded its state."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor) and value.numel() > 1:
                return value.data_ptr()
    return 0


def _settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The plain numbers among an optimizer's settings, which a recording holds as they were."""
    return [
        {name: value for name, value in group.items() if isinstance(value, int | float | tuple)}
        for group in optimizer.param_groups
    ]


def graphed(guard: Machinery, plainly: Callable[[Any], Tensor]) -> GraphedStep:
    """The step of a guard as a CUDA graph; see :meth:`Guard.graphed`."""
    check_graphable(guard)
    device = guard._setup.roster.device
    if device.type != "cuda":
        raise UsageError(
            f"guard.graphed() needs a CUDA device, but the model is on {device}", fix="use guard.step(loss)"
        )
    return GraphedStep(guard, CudaTape(device), plainly)
