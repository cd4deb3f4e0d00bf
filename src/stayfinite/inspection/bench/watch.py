"""Watch one pass above autograd: parameter use in order, inputs of loss functions."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stayfinite.autopsy.steps.changes import FunctionChange
from stayfinite.autopsy.tracing.frames import Lines
from stayfinite.core.source_lines import line_in_words
from stayfinite.inspection.bench.graph_walk import leaves_of, made_by

MOST_CUTS = 8
LAYERS = frozenset({"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
DIFFERENCES = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub", "__sub__", "__rsub__"})
CUTS = frozenset({"detach", "item", "numpy", "tolist"})
ENOUGH_SAMPLES = 16  # fewest samples to call a unit dead


class RefusedIndex(IndexError):
    """An index that would crash the kernel; on CUDA that kills the process."""


@dataclass(frozen=True, slots=True)
class LossCall:
    """A call of a loss function with its arguments."""

    name: str
    input: Tensor
    made_by: str
    """The operator that produced the input, such as `Softmax`."""
    learns: bool
    """Whether the input depends on anything that requires a gradient."""
    target: Tensor
    settings: dict[str, Any]
    value: Tensor | None
    """The return value; None if it was not called."""
    place: str


@dataclass(slots=True)
class Seen:
    """Observations of a pass."""

    training: bool | None = None
    """The model's mode at the first use of a parameter."""
    grad_enabled: bool | None = None
    """Whether gradients were enabled then."""
    awake: frozenset[int] = frozenset()
    """The ``id`` of every module in training mode then."""
    order: list[str] = field(default_factory=list)
    """Parameters in order of first use."""
    spreads: dict[str, float] = field(default_factory=dict)
    """Standard deviation of the layer output, by weight name."""
    input_scale: float | None = None
    """The larger of mean and standard deviation of the first layer's input, if that is data."""
    dead: list[tuple[float, str]] = field(default_factory=list)
    """Per ReLU: share of units that are 0 on every sample, and the last weight before it."""
    losses: list[LossCall] = field(default_factory=list)
    unequal: list[tuple[list[int], list[int], str]] = field(default_factory=list)
    """Mismatched shapes that were compared, with the line."""
    bad_ids: dict[str, list[int]] = field(default_factory=dict)
    """Out-of-range ids, by embedding name."""
    ids: list[Tensor] = field(default_factory=list)
    """Ids passed to each embedding, in order."""
    cuts: list[str] = field(default_factory=list)
    """Lines that cut the graph: `detach at train.py:12`."""
    strangers: dict[int, tuple[Tensor, str]] = field(default_factory=dict)
    """Parameters outside the model, by ``id``, with the line; kept alive so that no ``id`` is reused."""
    cut_off: dict[str, str] = field(default_factory=dict)
    """Parameters behind such a line, or used without gradients, with the line."""


class Watch(FunctionChange):
    """Records a pass. ``change_ids(call, ids) -> ids`` changes the ids passed to embeddings, by call number."""

    def __init__(self, model: nn.Module, change_ids: Callable[[int, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.seen = Seen()
        self._model, self._change_ids = model, change_ids
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._used: set[str] = set()
        self._entered = 0

    def __enter__(self) -> Any:
        """Start; frames outside this one do not belong to the training."""
        self._entered = id(sys._getframe(1))
        begin: Any = super().__enter__
        return begin()

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":
            if args and getattr(func, "__self__", None) is Tensor.data:
                self._note_cut("data", args[0])
            return func(*args, **kwargs)
        used = self._note_use(args, kwargs)
        if func is F.embedding:
            args, kwargs = self._embedding(args, kwargs)
        elif name in LOSSES and func is getattr(F, name, None):
            return self._loss(name, func, args, kwargs)
        elif name in CUTS and args:
            self._note_cut(name, args[0])
        if name in DIFFERENCES:
            self._note_shapes(name, args)
        result = func(*args, **kwargs)
        if used and name in LAYERS and isinstance(result, Tensor) and result.is_floating_point() and result.numel() > 1:
            if not self.seen.spreads and isinstance(args[0], Tensor) and not args[0].requires_grad:
                data = args[0].detach().float()
                self.seen.input_scale = max(abs(float(data.mean())), float(data.std()))
            self.seen.spreads.setdefault(used, float(result.detach().float().std()))
        elif name in ("relu", "relu_") and isinstance(result, Tensor):
            self._note_dead(result.detach())
        return result

    def _note_use(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The first weight among the arguments with at least two dimensions."""
        found = ""
        for arg in (*args, *kwargs.values()):
            name = self._names.get(id(arg)) if isinstance(arg, Tensor) else None
            if name is None:
                if isinstance(arg, nn.Parameter) and arg.requires_grad and id(arg) not in self.seen.strangers:
                    self.seen.strangers[id(arg)] = arg, self._here()
                continue
            if self.seen.training is None:
                self.seen.training, self.seen.grad_enabled = self._model.training, torch.is_grad_enabled()
                self.seen.awake = frozenset(id(module) for module in self._model.modules() if module.training)
            if name not in self._used:
                self._used.add(name)
                self.seen.order.append(name)
                if arg.requires_grad and not torch.is_grad_enabled():
                    self.seen.cut_off[name] = f"gradients off at {self._here()}"
            if not found and arg.dim() > 1:
                found = name
        return found

    def _embedding(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        ids = args[0] if args else kwargs["input"]
        table = args[1] if len(args) > 1 else kwargs["weight"]
        rows = int(table.shape[0])
        if self._change_ids is not None:
            ids = self._change_ids(len(self.seen.ids), ids)
            args, kwargs = ((ids, *args[1:]), kwargs) if args else (args, {**kwargs, "input": ids})
        self.seen.ids.append(ids.detach())
        bad = ids[(ids < 0) | (ids >= rows)] if not ids.is_meta else ids[:0]
        if bad.numel():
            name = self._names.get(id(table), "an embedding")
            self.seen.bad_ids[name] = bad.unique()[:8].tolist()
            raise RefusedIndex(f"{name} has {rows} rows but gets id {self.seen.bad_ids[name]}")
        return args, kwargs

    def _loss(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(LOSSES[name], args, strict=False)) | kwargs
        input, target = given.get("input", given.get("log_probs")), given.get("target", given.get("targets"))
        if not isinstance(input, Tensor) or not isinstance(target, Tensor):
            return func(*args, **kwargs)
        settings = {key: value for key, value in given.items() if key not in ("input", "target")}
        if name in DIFFERENCES:
            self._note_shapes(name, (input, target))
        else:
            self._refuse(name, input, target, settings)
        value = func(*args, **kwargs)
        self._note_loss(name, input, target, settings, value.detach() if isinstance(value, Tensor) else None)
        return value

    def _note_loss(
        self, name: str, input: Tensor, target: Tensor, settings: dict[str, Any], value: Tensor | None
    ) -> None:
        learns = input.requires_grad or not torch.is_grad_enabled()
        self.seen.losses.append(
            LossCall(name, input.detach(), made_by(input), learns, target.detach(), settings, value, self._here())
        )

    def _refuse(self, name: str, input: Tensor, target: Tensor, settings: dict[str, Any]) -> None:
        """Raise before the kernel crashes on an index or value out of range."""
        bad = out_of_range(name, input, target, settings)
        outside = name == "binary_cross_entropy" and not bool(((input >= 0) & (input <= 1)).all())
        if bad or (outside and bool(input.isfinite().all())):
            self._note_loss(name, input, target, settings, None)
            raise RefusedIndex(f"{name} gets labels outside its classes: {bad}" if bad else f"{name} gets scores")

    def _note_shapes(self, name: str, args: tuple[Any, ...]) -> None:
        if len(args) < 2 or not all(isinstance(arg, Tensor) for arg in args[:2]):
            return
        first, second = args[0], args[1]
        if first.shape == second.shape or not first.numel() or not second.numel():
            return
        learns = first.requires_grad != second.requires_grad
        if (learns and crossed(first, second)) or ("loss" in name and grows(first, second)):
            self.seen.unequal.append((list(first.shape), list(second.shape), self._here()))

    def _note_dead(self, result: Tensor) -> None:
        if result.dim() < 2 or not result.numel():
            return
        units = result.movedim(1, -1) if result.dim() >= 4 else result
        flat = units.reshape(-1, units.shape[-1])
        if flat.shape[0] >= ENOUGH_SAMPLES:
            after = self.seen.order[-1] if self.seen.order else ""
            self.seen.dead.append((float((flat.amax(0) <= 0).float().mean()), after))

    def _note_cut(self, kind: str, tensor: Any) -> None:
        inner = isinstance(tensor, Tensor) and tensor.requires_grad and not tensor.is_leaf
        if inner and len(self.seen.cuts) < MOST_CUTS:
            self.seen.cuts.append(f"{kind} at {self._here()}")
            behind = (self._names[id(leaf)] for leaf in leaves_of(tensor) if id(leaf) in self._names)
            self.seen.cut_off.update(dict.fromkeys(behind, self.seen.cuts[-1]))

    def _here(self) -> str:
        near, own = Lines().above(sys._getframe(1), until=self._entered)
        place = own or near
        return "" if place is None else line_in_words(place.file, place.line)


def out_of_range(name: str, input: Tensor, target: Tensor, settings: dict[str, Any]) -> list[float]:
    """Labels that are neither a class nor ignored; for binary losses, targets outside 0 to 1."""
    if target.is_meta or input.is_meta:
        return []
    if name.startswith("binary"):
        bad = target[(target < 0) | (target > 1)]
    elif name in ("cross_entropy", "nll_loss") and not target.is_floating_point() and input.dim():
        classes = input.shape[1] if input.dim() > 1 else input.shape[0]
        ignored = settings.get("ignore_index", -100)
        bad = target[((target < 0) | (target >= classes)) & (target != ignored)]
    else:
        return []
    return [float(value) if target.is_floating_point() else int(value) for value in bad.unique()[:8].tolist()]


def crossed(first: Tensor, second: Tensor) -> bool:
    """Whether a column meets a row of the same length, which broadcasts to a square."""
    column, row = sorted((first, second), key=lambda each: -each.dim())
    return column.dim() == 2 and row.dim() == 1 and column.shape[1] == 1 and column.shape[0] == row.shape[0] > 1


def grows(first: Tensor, second: Tensor) -> bool:
    """Whether tensors of different rank broadcast to more elements than either has."""
    # (32, 64, 1) with (32, 1, 64) compares all pairs on purpose.
    if first.dim() == second.dim():
        return False
    try:
        size = torch.broadcast_shapes(first.shape, second.shape).numel()
    except RuntimeError:
        return False
    return bool(size > max(first.numel(), second.numel()))


_CLASSES = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
LOSSES: dict[str, tuple[str, ...]] = {
    "cross_entropy": _CLASSES,
    "nll_loss": _CLASSES,
    "binary_cross_entropy": ("input", "target", "weight", "size_average", "reduce", "reduction"),
    "binary_cross_entropy_with_logits": (
        "input", "target", "weight", "size_average", "reduce", "reduction", "pos_weight",
    ),
    "kl_div": ("input", "target", "size_average", "reduce", "reduction", "log_target"),
    "mse_loss": ("input", "target", "size_average", "reduce", "reduction", "weight"),
    "l1_loss": ("input", "target", "size_average", "reduce", "reduction", "weight"),
    "smooth_l1_loss": ("input", "target", "size_average", "reduce", "reduction", "beta"),
    "huber_loss": ("input", "target", "reduction", "delta", "weight"),
}  # fmt: skip
"""Their positional arguments."""
