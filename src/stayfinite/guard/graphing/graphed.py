"""A guarded step as a CUDA graph: forward, backward, measurement, verdict and update.

The device part of the step is captured once and then replayed; the host part (schedule, records, ladder, snapshots)
runs beside it. There are two graphs: between them the device waits for a snapshot that is still being copied, which is
needed only before the weights change, and a learning rate cut applies to the second one only.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from stayfinite.errors import OptimizerError, UsageError
from stayfinite.guard.checks import check_loss
from stayfinite.guard.gates.gates import DeviceGate
from stayfinite.guard.gates.optimizers import awaits_first_step
from stayfinite.guard.graphing.graphs import CudaTape, Form, StaticBatch, Tape, capturable, first_cause, form_of
from stayfinite.guard.machinery import Machinery
from stayfinite.measure.fused import Fused
from stayfinite.measure.loss_collector import LossCollector
from stayfinite.measure.reading import Envelope, Reading
from stayfinite.measure.sample import Sample, Sampler
from stayfinite.state.landing import settle

WARM_UP = 3
"""Steps without a graph at the start: libraries initialize, the optimizer creates its moments."""


def check_graphable(guard: Machinery) -> DeviceGate:
    """Return the gate of a training whose step can be captured.

    Raises:
        UsageError: it cannot; says why.
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
    """``step(batch)`` is ``guard.step(guard.forward(batch))`` as a CUDA graph, and returns the loss.

    The first few steps, and batches of another form than the captured one, run without a graph. After a rollback, and
    whenever a captured object is replaced, the step is captured again.

    Arguments:
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
        """Take one step or refuse it, as :meth:`Guard.step` does.

        Returns:
            The loss, on the device; a copy that later steps do not change.
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
            with self._tape.aside():
                return self._take_plainly(batch).detach()
        if not self._replays:
            self._record(batch)
            self._form, self._recorded = form, self._present()
        return self._replay(batch)

    # -- recording ---------------------------------------------------------------------------------------------------

    def _record(self, batch: Any) -> None:
        guard, setup = self._guard, self._guard._setup
        self._gate = check_graphable(guard)
        self._check_settings()
        self._static = StaticBatch(batch, setup.roster.device)
        # A copy that started before the capture must not be part of it.
        settle(setup.optimizer)
        guard._optimizer.zero_grad(set_to_none=True)
        guard._reader.rehearse()
        kept = guard._reader.fused
        # Kept as long as the graphs, which read its tables at every replay.
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
            # The graphs keep writing to these, so their memory must not be reused.
            self._gradients = [parameter.grad for parameter in setup.roster.parameters]
            guard._start_afresh()

    def _let_go(self) -> None:
        """Drop the recording, so its memory (a whole step's) is available again."""
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
        # Torch's own sample allocates on the host, which a graph cannot do.
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
        """Reject an optimizer whose settings change: a graph would keep the first values."""
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
        """What the recording depends on; if it changes, the step is captured again."""
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
        decided = self._gate.acted(
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
        guard._take_note(decided)
        guard._between_steps()
        return loss


def _first_state(optimizer: Optimizer) -> int:
    """Address of the optimizer's first moment; it changes when its state is loaded."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor) and value.numel() > 1:
                return value.data_ptr()
    return 0


def _settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The optimizer's plain numeric settings, which a recording keeps."""
    return [
        {name: value for name, value in group.items() if isinstance(value, int | float | tuple)}
        for group in optimizer.param_groups
    ]


def graphed(guard: Machinery, plainly: Callable[[Any], Tensor]) -> GraphedStep:
    """The guard's step as a CUDA graph; see :meth:`Guard.graphed`."""
    check_graphable(guard)
    device = guard._setup.roster.device
    if device.type != "cuda":
        raise UsageError(
            f"guard.graphed() needs a CUDA device, but the model is on {device}", fix="use guard.step(loss)"
        )
    return GraphedStep(guard, CudaTape(device), plainly)
