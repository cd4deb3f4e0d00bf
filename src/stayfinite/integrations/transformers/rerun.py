"""Re-run a forward pass of a Trainer, to explain a bad step."""

import copy
from typing import Any

from torch import Tensor, nn
from transformers import Trainer

from stayfinite.errors import UsageError


class Rerun:
    """``forward(batch) -> loss`` as the Trainer, or a subclass with its own step, computes it.

    Runs ``training_step`` on a shallow copy of the Trainer whose ``accelerator.backward`` only records the loss, so
    gradients, counts and metrics are not touched.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._model: nn.Module | None = None
        self._more: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._step = 0

    def remember(self, model: nn.Module, more: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Keep what the current step uses besides its batches: the number of items in them."""
        self._model, self._more, self._step = model, (more, named), self._trainer.state.global_step

    def __call__(self, batch: Any) -> Tensor:
        """Loss of a batch, as used in backward.

        Raises:
            UsageError: a custom ``training_step`` runs backward in another way.
        """
        assert self._model is not None
        twin = copy.copy(self._trainer)
        for name, value in vars(twin).items():
            if "metrics" in name and isinstance(value, dict | list):
                setattr(twin, name, copy.deepcopy(value))
        # A loss may depend on the step; by now the Trainer counts the next one.
        twin.state = copy.copy(twin.state)
        twin.state.global_step = self._step
        deaf = _Deaf(self._trainer.accelerator)
        vars(twin)["accelerator"] = deaf
        if prepares_in_its_own_way(twin):
            vars(twin)["_prepare_inputs"] = dict
        more, named = self._more
        # From the class: on the instance it is the integration's own.
        type(twin).training_step(twin, self._model, batch, *more, **named)
        if deaf.loss is None:
            raise UsageError(
                f"{type(twin).__name__}.training_step did not call accelerator.backward(loss)",
                fix="call self.accelerator.backward(loss) in it, as the Trainer's own does",
            )
        return deaf.loss


def prepares_in_its_own_way(trainer: Trainer) -> bool:
    """Whether preparing inputs does more than move them to the device: some trl trainers generate text there.

    Then the prepared inputs are recorded and run again.
    """
    return type(trainer)._prepare_inputs is not Trainer._prepare_inputs


class _Deaf:
    """An accelerator without backward."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self.loss: Tensor | None = None

    def backward(self, loss: Tensor, **_: Any) -> None:
        self.loss = loss if self.loss is None else self.loss + loss

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)
