"""Record of a training program: steps, losses, optimizers, models, loaders, schedules, metrics."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Place = tuple[str, int]
"""File and line."""


MOST_VALUES = 4096
"""Elements sampled per tensor for statistics."""


@dataclass(slots=True)
class Course:
    """A number over the steps."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, value: float) -> None:
        self.steps.append(step)
        self.values.append(value)

    @property
    def finite(self) -> list[float]:
        return [value for value in self.values if math.isfinite(value)]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(slots=True)
class Stats:
    """Running statistics of tensors."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    tensors: int = 0
    shape: tuple[int, ...] = ()
    """Shape of one row."""
    places: dict[Place, int] = field(default_factory=dict)

    def add(self, tensor: Tensor, place: Place) -> None:
        flat = tensor.detach().reshape(-1)
        values = flat[:: max(1, flat.numel() // MOST_VALUES)].double()
        self.count += values.numel()
        self.total += float(values.sum())
        self.squares += float((values * values).sum())
        self.tensors += 1
        self.shape = tuple(tensor.shape[1:])
        self.places[place] = self.places.get(place, 0) + 1

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    @property
    def spread(self) -> float:
        """Standard deviation of all values."""
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2)) if self.count else math.nan


@dataclass(slots=True)
class ModelSeen:
    """A module the program calls directly, not through another."""

    module: nn.Module
    training: Stats = field(default_factory=Stats)
    """Inputs with gradients enabled."""
    evaluation: Stats = field(default_factory=Stats)
    """Inputs with gradients disabled."""
    calls_training: int = 0
    calls_evaluation: int = 0
    eval_in_training: int = 0
    """Calls with gradients enabled in evaluation mode."""
    eval_place: Place = ("", 0)
    train_place: Place = ("", 0)
    pending: list[bool] = field(default_factory=list)
    """For each call that may be an evaluation: whether it was in training mode."""
    prints: list[tuple[Any, ...]] = field(default_factory=list)
    """Fingerprints of its training inputs."""
    judged: int = 0
    """Evaluation calls: the output was compared, or an untrained loader was read."""
    judged_awake: int = 0
    """Evaluation calls in training mode."""
    ids: Any = None
    """The last integer input."""
    same_answers: list[bool] = field(default_factory=list)
    """Whether all rows had the same output, per sampled training call."""
    part_of_base: float = 1.0
    """Share of its training input in the tensor it is a view of."""


@dataclass(slots=True)
class OptimizerSeen:
    """An optimizer, or anything else that takes steps."""

    optimizer: Any
    place: Place
    """Where it was built."""
    steps: int = 0
    step_place: Place = ("", 0)
    backward_place: Place = ("", 0)
    """The backward call before its last step."""
    rates: Course = field(default_factory=Course)
    norms: Course = field(default_factory=Course)
    first_rate: float = math.nan
    stale: int = 0
    """Steps that reused gradients of an earlier step."""
    nothing: int = 0
    """Steps at which every gradient was 0 or None."""
    cleared: bool = True
    """Whether gradients were cleared since the last step."""
    witness: Any = None
    """A small parameter with a gradient."""
    cleared_unused: int = 0
    """Times fresh gradients were cleared before any step."""
    cleared_place: Place = ("", 0)
    fresh: bool = False
    """Whether there are unused gradients."""
    backwards: int = 0
    """Backward calls since its last step."""
    backwards_before: int = 0
    """The program's backward calls at its last step."""
    idle: int = 0
    """Steps without a backward call since the one before."""
    backwards_a_step: list[int] = field(default_factory=list)
    none_always: dict[int, int] = field(default_factory=dict)
    """Looks without a gradient, by ``id`` of the parameter."""
    looks: int = 0

    @property
    def parameters(self) -> list[Any]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]


@dataclass(slots=True)
class ScheduleSeen:
    """A learning-rate schedule."""

    schedule: Any
    steps: int = 0
    place: Place = ("", 0)


@dataclass(slots=True)
class LoaderSeen:
    """A DataLoader that was read."""

    loader: Any
    batches: int = 0
    epochs: int = 0
    in_epoch: int = 0
    last: Any = None
    """The last batch."""
    prints: list[tuple[Any, ...]] = field(default_factory=list)
    trained: bool = False
    """Whether backward was called while reading it."""


@dataclass(slots=True)
class LossSeen:
    """Calls of a torch loss function from one line."""

    name: str
    place: Place
    learns: bool
    calls: int = 0
    probabilities: int = 0
    """Calls that got probabilities instead of logits."""
    scores: int = 0
    """Calls that got logits instead of probabilities."""
    over_rows: int = 0
    """Calls with probabilities that sum to 1 over the batch."""
    broadcast: tuple[list[int], list[int]] | None = None
    turned: int = 0
    """Backward calls with the loss negated."""
    value: float = math.nan
    """Last value."""
    looked: int = 0
    labels: list[Tensor] = field(default_factory=list)
    """Class labels of the first batches."""
    reduction: str = "mean"
    rows: int = 0
    """Rows of the last inspected call."""
    classes: int = 0
    ids: int = 0
    """Calls whose labels equal the model's input ids."""
    over_batch: int = 0
    """Cross-entropy calls with a softmax over the batch."""
    pairs: dict[float, float] = field(default_factory=dict)
    """Last label by fingerprint of the input row."""
    again: int = 0
    """Rows seen again."""
    other_label: int = 0
    """Rows seen again with another label."""
    start: float | None = None
    """First value of a cross entropy over classes."""
    expected: float | None = None
    """ln(classes)."""


@dataclass(slots=True)
class BadStep:
    """The first non-finite step."""

    step: int
    loss: float
    grad_norm: float
    place: Place
    """Where backward was called."""
    backward: int = 0
    """Its last backward call, counted from 1."""
    steps_taken: int = 0
    """Optimizer steps before it."""


@dataclass(slots=True)
class Program:
    """Everything recorded of a program."""

    steps: int = 0
    backwards: int = 0
    losses: dict[Place, Course] = field(default_factory=dict)
    """By the line that calls backward."""
    losses_in_order: array[float] = field(default_factory=lambda: array("d"))
    """Losses of the first million backward calls."""
    optimizers: dict[int, OptimizerSeen] = field(default_factory=dict)
    models: dict[int, ModelSeen] = field(default_factory=dict)
    schedules: dict[int, ScheduleSeen] = field(default_factory=dict)
    loaders: dict[int, LoaderSeen] = field(default_factory=dict)
    loss_calls: dict[tuple[str, Place, bool], LossSeen] = field(default_factory=dict)
    crossed: dict[Place, tuple[str, list[int], list[int]]] = field(default_factory=dict)
    """Comparisons and differences that broadcast a column with a row."""
    sequences: dict[int, tuple[str, tuple[int, ...], Place]] = field(default_factory=dict)
    """Time-first recurrent and attention modules by ``id``: class, input shape, place."""
    hand: OptimizerSeen | None = None
    """Steps taken without an optimizer."""
    clips: int = 0
    scales: Course = field(default_factory=Course)
    """Scale of a GradScaler."""
    scaled: int = 0
    """Losses scaled by a GradScaler."""
    skipped: int = 0
    """Steps skipped by a GradScaler."""
    bad: BadStep | None = None
    refused: int = 0
    troubles: list[str] = field(default_factory=list)
    """The doctor's own failures."""
    printed: list[tuple[int, str]] = field(default_factory=list)
    """Printed lines with the step count at that time."""
    loaded: set[int] = field(default_factory=set)
    """``id`` of modules loaded with weights before the first step."""
    names: dict[int, str] = field(default_factory=dict)
    """The program's names for its modules, by ``id``."""
    seconds: float = 0.0
    first_weights: dict[int, Tensor] = field(default_factory=dict)
    """Initial weights and buffers, by ``id``."""

    @property
    def trains(self) -> bool:
        """Whether anything was trained, or meant to be."""
        return self.backwards > 0 or self.steps > 0

    @property
    def by_hand(self) -> bool:
        """Whether steps are taken without a torch optimizer."""
        return self.backwards > 1 and not self.scaled and not self.optimizers

    def held(self) -> set[int]:
        """``id`` of every parameter in an optimizer."""
        return {id(p) for each in self.optimizers.values() for p in each.parameters}

    def main_loss(self) -> Course:
        """Losses of the line that calls backward most often."""
        return max(self.losses.values(), key=len, default=Course())

    def main_optimizer(self) -> OptimizerSeen | None:
        """The optimizer with the most steps."""
        stepping = [each for each in self.optimizers.values() if each.steps]
        return max(stepping, key=lambda each: each.steps, default=None)

    def learning_models(self) -> list[ModelSeen]:
        """Models with parameters in an optimizer."""
        held = self.held()
        return [each for each in self.models.values() if any(id(p) in held for p in each.module.parameters())]


def fingerprint(tensor: Tensor) -> tuple[Any, ...]:
    """A short key that equal tensors share."""
    flat = tensor.detach().reshape(-1)
    if not flat.numel():
        return (0,)
    some = flat[:: max(1, flat.numel() // 48)][:48]
    whole = flat if flat.dtype is not torch.bool else flat.int()
    total = float(whole.sum(dtype=torch.float64)) if not whole.is_complex() else 0.0
    return (*tensor.shape, total, *some.to(torch.float64 if some.is_floating_point() else some.dtype).tolist())


def tensors_in(part: Any, depth: int = 0) -> list[Tensor]:
    """Tensors in nested arguments or a batch, in order."""
    if isinstance(part, Tensor):
        return [part]
    if depth > 3:
        return []
    values = list(part.values()) if isinstance(part, dict) else part if isinstance(part, list | tuple) else ()
    return [tensor for value in values[:32] for tensor in tensors_in(value, depth + 1)]
