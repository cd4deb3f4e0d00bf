"""Read one step's numbers after backward, before clipping."""

from dataclasses import replace
from operator import attrgetter

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler, OptState
from torch.optim import Optimizer

from stayfinite.errors import LossError
from stayfinite.guard.checks import check_rate
from stayfinite.guard.gates.gates import TrainingSetup
from stayfinite.measure.fused import Fused, fused_for
from stayfinite.measure.gradients import measure_gradients, own_part, told_gradients
from stayfinite.measure.loss_collector import LossCollector
from stayfinite.measure.reading import Reading, highest_lr
from stayfinite.measure.roster import take_roster
from stayfinite.measure.sample import Sampler

_requires_grad = attrgetter("requires_grad")


class Reader:
    """Reads gradients, loss and learning rate, and keeps the roster up to date.

    Arguments:
        setup: shared with the gates; its roster is replaced here.
        sample_every: steps between detailed samples; 0 for none.
        watches: whether the guard only monitors.
    """

    def __init__(
        self,
        model: nn.Module,
        setup: TrainingSetup,
        collector: LossCollector,
        sample_every: int,
        *,
        watches: bool = False,
    ) -> None:
        self._model = model
        self._setup = setup
        self._collector = collector
        self.sample_every = sample_every
        self._watches = watches
        self._held = _trained(setup.optimizer)
        self._indices: tuple[int, ...] = ()
        self.fused = self._kernels()
        """Kernels that read the gradients; None for torch's own."""

    def renew_roster(self) -> bool:
        """Update the roster if other parameters are trained now; return whether it changed."""
        # Compare identities, not counts: one layer may be unfrozen while another is frozen.
        if (trained := _trained(self._setup.optimizer)) == self._held:
            return False
        self._setup.roster = take_roster(self._model, self._setup.optimizer, partial=self._setup.driven)
        self._held = trained
        self.fused = self._kernels()
        return True

    def read(
        self, step: int, loss: Tensor, *, first: bool, unscale: bool = True, norm: Tensor | None = None
    ) -> Reading:
        """Read the numbers of a step.

        Arguments:
            first: whether no step was accepted before.
            unscale: whether to unscale the gradients, if there is a scaler.
            norm: gradient norm over all ranks, if an engine owns and measures the gradients.

        Raises:
            LossError: the loss has never reached a parameter.
            OptimizerError: the learning rate is not finite.
        """
        lr = highest_lr(self._setup.optimizer)
        if not self._watches and isinstance(lr, float):
            check_rate(lr, step)
        scale: Tensor | None = None
        scaler = self._setup.scaler
        if scaler is not None and any(p.grad is not None for p in self._setup.roster.parameters):
            scale = scaler._get_scale_async()
            scale = None if scale is None else scale.clone()
            if unscale:
                scaler.unscale_(self._setup.optimizer)
        gradients = measure_gradients(self._setup.roster, self.fused) if norm is None else told_gradients(norm)
        self._indices = gradients.indices
        if scale is not None and not unscale and not is_unscaled(scaler, self._setup.optimizer):
            # The framework unscales later, and only once: leave the gradients and correct their norms.
            gradients = replace(gradients, norms=gradients.norms / scale, total=gradients.total / scale)
        if not gradients.indices and first and not gradients.told:
            raise LossError(
                "backward() gave no gradient to any parameter of the optimizer",
                fix="compute the loss from this model's output",
            )
        return Reading(
            step=step,
            loss=loss,
            gradients=gradients,
            lr=lr,
            loss_scale=scale,
            parts=self._collector.parts,
            named=self._collector.signals,
            batch=self._collector.batches,
            batch_shape=self._collector.batch_shape,
        )

    def in_words(self) -> str:
        """How gradients are read, for ``guard.describe()``; empty on the CPU."""
        if self._setup.roster.device.type == "cpu":
            return ""
        if self.fused is None:
            return "; gradients read by torch"
        if self.fused.trouble:
            return f"; gradients read by torch, because the kernels failed: {self.fused.trouble}"
        return "; gradients read by one fused kernel"

    def _kernels(self) -> Fused | None:
        # A framework that lets the guard clip gets torch's norm bitwise.
        return None if self._setup.driven else fused_for(self._setup.roster)

    def sampler(self, reading: Reading) -> Sampler | None:
        """A detailed sample if one is due."""
        return self.look(reading) if self.due(reading.step) and not reading.gradients.told else None

    def due(self, step: int) -> bool:
        """Whether a detailed sample is due at this step."""
        return bool(self.sample_every) and (step % self.sample_every == 0 or step == 1)

    def rehearse(self) -> None:
        """Load what a sample needs, before a graph capture."""
        if self.fused is None or not self.sample_every or not self._indices:
            return
        self.fused.rehearse([own_part(self._setup.roster.parameters[index]) for index in self._indices])

    def look(self, reading: Reading) -> Sampler:
        return Sampler(self._setup.roster, reading.step, reading.gradients, self.fused)


def is_unscaled(scaler: GradScaler | None, optimizer: Optimizer) -> bool:
    """Whether the optimizer's gradients were unscaled since its last step."""
    return scaler is None or scaler._per_optimizer_states[id(optimizer)]["stage"] is OptState.UNSCALED


def _trained(optimizer: Optimizer) -> list[list[int]]:
    """Identities and trainability of all parameters; fast, since it runs at every step."""
    held = [group["params"] for group in optimizer.param_groups]
    return [list(map(look, parameters)) for parameters in held for look in (id, _requires_grad)]
