"""What was seen of a program that trains: its steps, losses, optimizers, models, loaders, schedules, metrics."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Place = tuple[str, int]
"""File and line."""


MOST_VALUES = 4096
"""Values of one tensor that go into its statistics."""


@dataclass(slots=True)
class Course:
    """One number over the steps of a program."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, value: float) -> None:
        """One more."""
        self.steps.append(step)
        self.values.append(value)

    @property
    def finite(self) -> list[float]:
        """Those that are numbers."""
        return [value for value in self.values if math.isfinite(value)]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(slots=True)
class Stats:
    """Of tensors that went one way: how many, how large."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    tensors: int = 0
    shape: tuple[int, ...] = ()
    """Of one row."""
    places: dict[Place, int] = field(default_factory=dict)

    def add(self, tensor: Tensor, place: Place) -> None:
        """One more tensor."""
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
        """Of all values."""
        return self.total / self.count if self.count else math.nan

    @property
    def spread(self) -> float:
        """Their standard deviation."""
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2)) if self.count else math.nan


@dataclass(slots=True)
class ModelSeen:
    """A module that the program calls by itself, not through another."""

    module: nn.Module
    training: Stats = field(default_factory=Stats)
    """What it is given with gradients on."""
    evaluation: Stats = field(default_factory=Stats)
    """What it is given with gradients off."""
    calls_training: int = 0
    calls_evaluation: int = 0
    eval_in_training: int = 0
    """Calls with gradients on while it was in evaluation mode, ..."""
    eval_place: Place = ("", 0)
    train_place: Place = ("", 0)
    pending: list[bool] = field(default_factory=list)
    """Calls of what may be an evaluation: whether each was in training mode."""
    prints: list[tuple[Any, ...]] = field(default_factory=list)
    """Of what it was given in training, a short form of each."""
    judged: int = 0
    """Calls in an evaluation: what came out was compared, or a loader was read that is not trained on; ..."""
    judged_awake: int = 0
    """... those of them in training mode."""
    ids: Any = None
    """The last whole numbers that it was given."""
    same_answers: list[bool] = field(default_factory=list)
    """At the calls in training that were looked at: whether all rows got the same answer."""
    part_of_base: float = 1.0
    """The share that its training input has of the tensor it is a view of."""


@dataclass(slots=True)
class OptimizerSeen:
    """An optimizer, or whatever takes steps."""

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
    """Steps that used gradients of a step before once more."""
    empty: int = 0
    """Steps without a gradient, though a backward had just made some."""
    nothing: int = 0
    """Steps at which no parameter had a gradient other than 0."""
    cleared: bool = True
    """Whether its gradients were cleared since its last step."""
    witness: Any = None
    """A small parameter with a gradient."""
    cleared_unused: int = 0
    """Times that fresh gradients were cleared before any step."""
    cleared_place: Place = ("", 0)
    fresh: bool = False
    """Whether there are gradients that no step has used."""
    backwards: int = 0
    """Backward calls since its last step."""
    backwards_before: int = 0
    """The program's backward calls when it last stepped."""
    idle: int = 0
    """Steps with no backward call since the one before."""
    backwards_a_step: list[int] = field(default_factory=list)
    none_always: dict[int, int] = field(default_factory=dict)
    """By ``id`` of a parameter: looks at which it had no gradient."""
    zero_always: dict[int, int] = field(default_factory=dict)
    """The same for gradients of exactly 0."""
    looks: int = 0


@dataclass(slots=True)
class ScheduleSeen:
    """A learning-rate schedule."""

    schedule: Any
    steps: int = 0
    steps_at: list[int] = field(default_factory=list)
    """The program's step count when it was stepped; the first few hundred."""
    place: Place = ("", 0)


@dataclass(slots=True)
class LoaderSeen:
    """A DataLoader that was read."""

    loader: Any
    batches: int = 0
    epochs: int = 0
    longest: int = 0
    """Batches that were read of one epoch at most."""
    in_epoch: int = 0
    last: Any = None
    """The last batch, held."""
    prints: list[tuple[Any, ...]] = field(default_factory=list)
    trained: bool = False
    """Whether backward was called while it was read."""


@dataclass(slots=True)
class LossSeen:
    """A loss function of torch's, called somewhere."""

    name: str
    place: Place
    learns: bool
    calls: int = 0
    probabilities: int = 0
    """Calls that were given probabilities instead of scores, ..."""
    scores: int = 0
    """... scores instead of probabilities, ..."""
    over_rows: int = 0
    """... probabilities that add up to 1 over the batch."""
    broadcast: tuple[list[int], list[int]] | None = None
    turned: int = 0
    """Backwards on this loss with its sign turned."""
    value: float = math.nan
    """The last."""
    looked: int = 0
    labels: list[Tensor] = field(default_factory=list)
    """The classes of the first batches."""
    reduction: str = "mean"
    rows: int = 0
    """Labels of the last call that was looked at."""
    classes: int = 0
    ids: int = 0
    """Calls whose labels are, one for one, the ids that the model was given."""
    over_batch: int = 0
    """Calls of cross entropy whose scores are probabilities over the batch."""
    pairs: dict[float, float] = field(default_factory=dict)
    """By a short form of an input row, the label that it was last given."""
    again: int = 0
    """Rows that came again, ..."""
    other_label: int = 0
    """... and those of them with another label."""
    start: float | None = None
    """Where it began, of cross entropy over classes, ..."""
    expected: float | None = None
    """... and ln(classes)."""


@dataclass(slots=True)
class BadStep:
    """The first step that was not finite."""

    step: int
    loss: float
    grad_norm: float
    place: Place
    """Where backward was called."""
    backward: int = 0
    """Its last backward call, counted from 1."""
    steps_taken: int = 0
    """Steps of optimizers before it."""


@dataclass(slots=True)
class Program:
    """What was seen of a program."""

    steps: int = 0
    backwards: int = 0
    losses: dict[Place, Course] = field(default_factory=dict)
    """By the line that calls backward."""
    losses_in_order: array[float] = field(default_factory=lambda: array("d"))
    """Of every backward call, the first million."""
    optimizers: dict[int, OptimizerSeen] = field(default_factory=dict)
    models: dict[int, ModelSeen] = field(default_factory=dict)
    schedules: dict[int, ScheduleSeen] = field(default_factory=dict)
    loaders: dict[int, LoaderSeen] = field(default_factory=dict)
    loss_calls: dict[tuple[str, Place, bool], LossSeen] = field(default_factory=dict)
    crossed: dict[Place, tuple[str, list[int], list[int]]] = field(default_factory=dict)
    """Comparisons and differences of a column with a row."""
    sequences: dict[int, tuple[str, tuple[int, ...], Place]] = field(default_factory=dict)
    """By ``id`` of a recurrent or attention module that wants time first: its kind, what it was given, and the line."""
    hand: OptimizerSeen | None = None
    """Steps of the program's own writing, without an optimizer."""
    clips: int = 0
    clip_place: Place = ("", 0)
    scales: Course = field(default_factory=Course)
    """Of a GradScaler."""
    scaled: int = 0
    """Losses that a GradScaler has scaled, ..."""
    skipped: int = 0
    """... and steps that it has skipped."""
    bad: BadStep | None = None
    refused: int = 0
    troubles: list[str] = field(default_factory=list)
    """Failures of our own."""
    printed: list[tuple[int, str]] = field(default_factory=list)
    """Lines with the number of steps that had been taken."""
    loaded: set[int] = field(default_factory=set)
    """``id`` of modules that were given weights from elsewhere before the first step."""
    names: dict[int, str] = field(default_factory=dict)
    """By ``id``, what the program calls its modules."""
    seconds: float = 0.0
    first_weights: dict[int, Tensor] = field(default_factory=dict)
    """Weights and buffers before the first step, by ``id``."""

    @property
    def trains(self) -> bool:
        """Whether anything was trained, or was meant to be."""
        return self.backwards > 0 or self.steps > 0

    @property
    def by_hand(self) -> bool:
        """Whether steps are taken without an optimizer of torch's."""
        return self.backwards > 1 and not self.scaled and not self.optimizers

    def held(self) -> set[int]:
        """``id`` of every parameter that an optimizer has."""
        return {
            id(parameter)
            for each in self.optimizers.values()
            for group in each.optimizer.param_groups
            for parameter in group["params"]
        }

    def main_loss(self) -> Course:
        """The losses of the line that calls backward most often."""
        return max(self.losses.values(), key=len, default=Course())

    def main_optimizer(self) -> OptimizerSeen | None:
        """The one that takes most steps."""
        stepping = [each for each in self.optimizers.values() if each.steps]
        return max(stepping, key=lambda each: each.steps, default=None)

    def learning_models(self) -> list[ModelSeen]:
        """Models whose parameters an optimizer has."""
        held = self.held()
        return [each for each in self.models.values() if any(id(p) in held for p in each.module.parameters())]


def fingerprint(tensor: Tensor) -> tuple[Any, ...]:
    """A short form that two equal tensors share."""
    flat = tensor.detach().reshape(-1)
    if not flat.numel():
        return (0,)
    some = flat[:: max(1, flat.numel() // 48)][:48]
    whole = flat if flat.dtype is not torch.bool else flat.int()
    total = float(whole.sum(dtype=torch.float64)) if not whole.is_complex() else 0.0
    return (*tensor.shape, total, *some.to(torch.float64 if some.is_floating_point() else some.dtype).tolist())


def tensors_in(part: Any, depth: int = 0) -> list[Tensor]:
    """The tensors of a call's arguments or of a batch, in order."""
    if isinstance(part, Tensor):
        return [part]
    if depth > 3:
        return []
    values: Sequence[Any] = ()
    if isinstance(part, list | tuple):
        values = part
    elif isinstance(part, dict):
        values = list(part.values())
    return [tensor for value in values[:32] for tensor in tensors_in(value, depth + 1)]
