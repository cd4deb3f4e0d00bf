"""The parts of a training before its first step, and the passes that probes share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stayfinite.autopsy.steps.batch_parts import batch_items, batch_size, take_rows
from stayfinite.autopsy.steps.step import Step
from stayfinite.inspection.bench.inputs import names_in_short, without_values
from stayfinite.inspection.bench.keeping import Keeping
from stayfinite.inspection.bench.passes import FirstPass, StillPass, Update, first_pass, one_update, still_pass, unable
from stayfinite.inspection.bench.watch import RefusedIndex
from stayfinite.state.rng import capture_rng

LONG = 3.0  # seconds per pass above which some probes use only part of the batch
FEW = 2  # rows used to test for leaks


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The parts of a training. Probes run passes over them and leave them unchanged."""

    model: nn.Module
    optimizer: Optimizer
    batch: Any
    forward: Callable[[Any], Any]
    """``forward(batch) -> loss``, with the training's own autocast."""
    scaler: GradScaler | None = None
    loader: Iterable[Any] | None = None
    scheduler: Any = None
    validation: Any = None
    """A validation batch or loader."""
    metric: Callable[[Any], Any] | None = None
    """``metric(batch) -> number``, the training's metric."""
    precision: str | None = None
    """Intended precision, if `forward` does not show it: fp16, bf16, fp32."""
    steps: int = 10
    """Limit of the learning test; 0 to skip it."""
    lr_range: bool = False
    """Also find the range of learning rates that works."""
    stalled: bool = False
    """The loss of the training is known to stagnate."""

    @cached_property
    def kept(self) -> Keeping:
        """The initial state of everything, to be restored."""
        parts = [part for part in (self.optimizer, self.scaler) if part is not None]
        return Keeping(self.model, *parts, generators=(*_generators_of(self.loader), *_generators_of(self.validation)))

    @property
    def working_scaler(self) -> GradScaler | None:
        """The scaler, if it is enabled."""
        return self.scaler if self.scaler is not None and self.scaler.is_enabled() else None

    @cached_property
    def trainable(self) -> dict[str, nn.Parameter]:
        """Trainable parameters by name, tied ones once."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @cached_property
    def step(self) -> Step:
        """One step that can be rerun with changes."""
        return Step(model=self.model, forward=self.run_forward, batch=self.batch, rng=capture_rng())

    def run_forward(self, batch: Any) -> Any:
        """The training's forward pass; refused after an out-of-range index.

        On CUDA, an unwatched second one would kill the process.
        """
        first: FirstPass | None = self.__dict__.get("first")
        if first is not None and isinstance(first.forward_error, RefusedIndex):
            raise first.forward_error
        return self.forward(batch)

    @cached_property
    def first(self) -> FirstPass:
        """One forward and backward pass, without the optimizer."""
        empty = without_values(self.model, self.batch)
        if empty:
            return unable(self.model, f"{names_in_short(empty)}: on the meta device, without values")
        return first_pass(self.model, self.step, self.scaler)

    @cached_property
    def update(self) -> Update:
        """One real optimizer step with the gradients of the first pass, undone afterwards."""
        return one_update(self.optimizer, self.trainable, self.first, self.kept)

    @cached_property
    def validation_batch(self) -> Any:
        """The validation batch, or the first of its loader."""
        if self.validation is None or batch_items(self.validation):
            return self.validation
        return next(iter(self.validation), None)

    @property
    def uphill(self) -> float:
        """-1 if the optimizer maximizes, else 1."""
        groups = self.optimizer.param_groups
        return -1.0 if groups and all(group.get("maximize") for group in groups) else 1.0

    @cached_property
    def few(self) -> Any:
        """Two rows of the batch; all of it if rows cannot be separated."""
        size = batch_size(self.batch)
        return self.batch if size is None or size <= FEW else take_rows(self.batch, list(range(FEW)), size)

    @property
    def lean(self) -> Step:
        """A step for further passes: with two rows if the whole batch is slow."""
        return self.step if self.first.seconds < LONG else self.step.changed(batch=self.few)

    @cached_property
    def still(self) -> StillPass:
        """A pass over two rows in evaluation mode without gradients; later changes come from the input alone."""
        try:
            return still_pass(self.step, self.few)
        except Exception:  # not every model accepts another number of rows
            self.__dict__["few"] = self.batch
            return still_pass(self.step, self.few)


def _generators_of(loader: Any) -> tuple[torch.Generator, ...]:
    holders = (
        loader,
        getattr(loader, "sampler", None),
        getattr(getattr(loader, "batch_sampler", None), "sampler", None),
    )
    found = [getattr(holder, "generator", None) for holder in holders]
    return tuple({id(one): one for one in found if isinstance(one, torch.Generator)}.values())
