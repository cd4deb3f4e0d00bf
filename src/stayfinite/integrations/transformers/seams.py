"""Find the Trainer of a callback, whether its steps can be refused, and how a forward pass of it runs again."""

import copy
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import FrameType, MethodType
from typing import Any, Literal

import torch
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import DistributedType, convert_outputs_to_fp32
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import Trainer, TrainerCallback

from stayfinite.doctor.stand_ins import StandIns
from stayfinite.errors import OrderError, UsageError
from stayfinite.guard.recovering.precision import DTYPES
from stayfinite.integrations.places import agreed, free_place


def precision_of(trainer: Trainer) -> Literal["fp16", "bf16"] | None:
    """Mixed precision of the model under accelerate, if it can be changed later; else None."""
    mixed = trainer.accelerator.mixed_precision
    if mixed not in ("fp16", "bf16") or _autocasting(trainer) is None or trainer.args.torch_compile:
        return None
    return "fp16" if mixed == "fp16" else "bf16"


def change_precision(trainer: Trainer, precision: str, stand_ins: StandIns) -> None:
    """Run the model in another precision from now on. Only fp16 needs a loss scaler, so it is removed."""
    model: Any = _autocasting(trainer)
    assert model is not None, "offered only where accelerate casts"
    plain = model._original_forward.__func__
    cast = plain
    if precision != "fp32":
        cast = torch.autocast(trainer.accelerator.device.type, dtype=DTYPES[precision])(plain)
    stand_ins.set(model, "forward", MethodType(convert_outputs_to_fp32(cast), model))
    stand_ins.set(trainer.accelerator, "scaler", None)
    for layer in layers_of(trainer.optimizer):
        stand_ins.set(layer, "scaler", None)


def _autocasting(trainer: Trainer) -> nn.Module | None:
    """The module whose forward pass accelerate wrapped in autocast."""
    model: Any = trainer.model
    return model if isinstance(getattr(model, "_original_forward", None), MethodType) else None


NEEDED = ("training_step", "log", "_run_epoch", "_finalize_training")
"""Trainer methods that the integration relies on."""

FIRST_VERSION = "5.3"


def check_version() -> None:
    """Raise UsageError if the installed transformers lacks a needed method."""
    missing = [name for name in NEEDED if not hasattr(Trainer, name)]
    if missing:
        raise UsageError(
            f"transformers {metadata.version('transformers')} has no Trainer.{missing[0]}: its steps cannot be refused",
            fix=f"pip install 'transformers>={FIRST_VERSION}'; or use stayfinite.Guard in your own loop",
        )


def trainer_of(callback: TrainerCallback) -> Trainer:
    """The Trainer that is calling this callback, which a callback is not told.

    Raises:
        OrderError: no Trainer is.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Trainer) and any(each is callback for each in owner.callback_handler.callbacks):
            return owner
        frame = frame.f_back
    raise OrderError(
        f"{type(callback).__name__} was called outside a transformers Trainer",
        fix="give it to the Trainer: Trainer(..., callbacks=[StayFinite()])",
    )


def why_not(trainer: Trainer) -> str:
    """Why this Trainer's steps cannot be refused; empty if they can."""
    if steps_in_engine(trainer):
        from stayfinite.integrations.deepspeed.masters import check_engine

        try:
            check_engine(trainer.model_wrapped)
        except UsageError as error:
            return error.message
        return ""
    if trainer.accelerator.distributed_type in (DistributedType.XLA, DistributedType.MEGATRON_LM):
        return f"{trainer.accelerator.distributed_type} steps inside its own engine"
    optimizer = type(plain_optimizer(trainer.optimizer)).__name__
    if optimizer in ("LayerWiseDummyOptimizer", "Lomo", "AdaLomo"):
        return f"{trainer.args.optim} updates weights during backward, before a step can be refused"
    return ""


def steps_in_engine(trainer: Trainer) -> bool:
    """Whether a DeepSpeed engine takes this Trainer's steps."""
    return bool(trainer.accelerator.distributed_type == DistributedType.DEEPSPEED)


def layers_of(optimizer: Any) -> Iterator[AcceleratedOptimizer]:
    """accelerate's wrappers around an optimizer, outermost first; training twice may leave several."""
    while isinstance(optimizer, AcceleratedOptimizer):
        yield optimizer
        optimizer = optimizer.optimizer


def plain_optimizer(optimizer: Any) -> Optimizer:
    """The optimizer inside accelerate's wrappers."""
    while isinstance(optimizer, AcceleratedOptimizer):
        optimizer = optimizer.optimizer
    assert isinstance(optimizer, Optimizer)
    return optimizer


def place_for(trainer: Trainer, *, resumed: bool) -> Path:
    """Run directory in the Trainer's output directory; a new training gets a new one.

    Chosen by rank 0 for all ranks.
    """
    first = Path(str(trainer.args.output_dir)) / "stayfinite"
    free = free_place(first, again=False)
    return agreed(_before(free, first) if resumed else free)


def _before(free: Path, first: Path) -> Path:
    """The newest directory in use, given the next free one."""
    number = int(free.name.removeprefix(f"{first.name}-")) - 1 if free != first else 1
    return first if number < 2 else first.with_name(f"{first.name}-{number}")


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
