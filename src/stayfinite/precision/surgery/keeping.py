"""Keep a model within fp16's range while it trains: factors that follow its activations.

Weights written by `rescale` have room for what was seen. Training moves activations, often by more. Here the factors
are no part of the weights, so they can change at any step, and nothing else has to: not the optimizer, not its rates,
not the checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stayfinite.errors import UsageError
from stayfinite.precision.formats import FP16
from stayfinite.precision.regions import autocast_region
from stayfinite.precision.surgery.choosing import Levels, balanced_exponents
from stayfinite.precision.surgery.factors import Factors, freedoms_in_autocast
from stayfinite.precision.surgery.families import anatomy_of
from stayfinite.precision.surgery.freedoms import Anatomy
from stayfinite.precision.surgery.measuring import main_tensor

NEAR = FP16.largest / 8
"""Activations beyond this move the factors; they may still grow 8 times until the next look."""
TARGET = FP16.largest / 64
"""What is moved is brought below this."""


class Move(NamedTuple):
    """One change of the factors."""

    forward: int
    """Which forward pass in fp16, from 1."""
    because: str
    """The activation that came too near: `encoder.block.1:out`."""
    largest: float
    """Its size, in the model's own scale; inf if it had overflowed."""
    exponents: Mapping[str, int]
    """All factors since then, as exponents of two, by freedom."""


class InRange:
    """Factors of a model, moved when its activations come near fp16's limit. Made by :func:`keep_in_range`."""

    def __init__(self, model: nn.Module, *, every: int = 10) -> None:
        halves = [name for name, p in model.named_parameters() if p.dtype in (torch.float16, torch.bfloat16)]
        if halves:
            raise UsageError(f"{halves[0]} is in half precision", fix="load the model with dtype=torch.float32")
        if every < 1:
            raise UsageError(f"every={every}", fix="look at activations every 10th forward pass: every=10")
        self.model, self.every = model, every
        self.moves: list[Move] = []
        self._freedoms = freedoms_in_autocast(model, _anatomy(model))
        if all(freedom.restored is None for freedom in self._freedoms):
            raise UsageError(
                f"{type(model).__name__} has no nn.Linear layer to rescale",
                fix="keep what overflows in fp32: `stayfinite precision` names it",
            )
        self._factors = Factors(model, self._freedoms)
        self._forwards = 0
        self._looking = self._measuring = False
        self._seen: dict[str, tuple[Tensor, Tensor]] = {}
        self._handles = [
            model.register_forward_pre_hook(self._before, with_kwargs=True),
            model.register_forward_hook(self._after),
            *self._listen(),
        ]

    @property
    def exponents(self) -> dict[str, int]:
        """The factors as exponents of two, by freedom; those of 1 are left out."""
        return dict(self._factors.exponents)

    def remove(self) -> None:
        """Take factors and hooks off the model."""
        self._factors.remove()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # -- looking -----------------------------------------------------------------------------------------------------

    def _before(self, _model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._measuring or not torch.is_grad_enabled() or not self._in_fp16():
            return
        if self._seen:
            self._judge(args, kwargs)
        if self._forwards == 0:
            self._look(args, kwargs)
            self._fit(self._levels(), at_start=True)
        self._forwards += 1
        # A young training moves fast.
        self._looking = self._forwards % self.every == 0 or self._forwards <= 2 * self.every
        self._seen = {}

    def _after(self, _model: nn.Module, _args: Any, _output: Any) -> None:
        self._looking = False

    def _judge(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Move the factors if the last measured pass came near the limit."""
        levels = self._levels()
        if not all(math.isfinite(level.largest) for level in levels.values()):
            # What overflowed has no size in fp16: look at this batch in fp32.
            self._look(args, kwargs)
            levels = self._levels()
        inside = self._factors.inside()
        if any(level.largest * 2.0 ** inside[name] > NEAR for name, level in levels.items()):
            self._fit(levels)

    def _fit(self, levels: Mapping[str, Levels], *, at_start: bool = False) -> None:
        before = self._factors.exponents
        exponents = balanced_exponents(self.model, self._freedoms, levels, near=NEAR, target=TARGET)
        if exponents != before:
            was = self._factors.inside()
            because = max(levels, key=lambda name: levels[name].largest * 2.0 ** was[name])
            self._factors.set(exponents)
            self.moves.append(Move(self._forwards + at_start, because, levels[because].largest, self.exponents))

    def _look(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Measure a forward pass in fp32, as if it had not been."""
        device = next(self.model.parameters()).device
        held = [(buffer, buffer.clone()) for buffer in self.model.buffers()]  # running statistics
        self._seen, self._looking, self._measuring = {}, True, True
        try:
            with (
                torch.random.fork_rng([device] if device.type == "cuda" else []),
                torch.no_grad(),
                autocast_region(device.type, None),
            ):
                self.model(*args, **kwargs)
        finally:
            self._looking = self._measuring = False
            for buffer, value in held:
                buffer.copy_(value)

    def _levels(self) -> dict[str, Levels]:
        """What was seen, in the model's own scale."""
        names = list(self._seen)
        values = torch.stack([value for pair in self._seen.values() for value in pair]).tolist()
        shift = self._factors.outside()
        return {
            name: Levels(values[2 * index] * 2.0 ** -shift[name], values[2 * index + 1] * 2.0 ** -shift[name])
            for index, name in enumerate(names)
        }

    def _in_fp16(self) -> bool:
        kind = next(self.model.parameters()).device.type
        return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) is torch.float16

    def _listen(self) -> list[Any]:
        names = {name for freedom in self._freedoms for name in freedom.activations}
        handles = []
        for name in sorted(names):
            path, _, side = name.partition(":")
            try:
                module = self.model.get_submodule(path)
            except AttributeError:
                continue
            if side == "in":
                handles.append(module.register_forward_pre_hook(_Hears(self, name).before, with_kwargs=True))
            else:
                handles.append(module.register_forward_hook(_Hears(self, name).after))
        return handles

    @torch.no_grad()
    def _hear(self, name: str, value: Any) -> None:
        tensor = main_tensor(value) if self._looking else None
        if tensor is None or not tensor.is_floating_point() or not tensor.numel():
            return
        wide = tensor.detach().float()
        largest = wide.abs().amax()
        typical = torch.linalg.vector_norm(wide) / math.sqrt(wide.numel())
        if name in self._seen:  # a module that is called several times
            largest, typical = torch.maximum(self._seen[name][0], largest), self._seen[name][1]
        self._seen[name] = largest, typical


class _Hears(NamedTuple):
    owner: InRange
    name: str

    def before(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.owner._hear(self.name, args or tuple(kwargs.values()))

    def after(self, _module: nn.Module, _args: Any, output: Any) -> None:
        self.owner._hear(self.name, output)


def keep_in_range(model: nn.Module, *, every: int = 10) -> InRange:
    """Train a model in fp16 autocast that overflows there: its activations are kept within the range, by powers of two.

    The function, the weights, the optimizer and the checkpoints stay the same. The first forward pass under fp16
    autocast is measured in fp32 first; later ones are watched as they come, and when an activation comes within a
    factor of 8 of the limit, the factors move.

    Arguments:
        model: any with nn.Linear layers, weights in fp32. In T5, LLaMA and BART families attention's values, queries
            and keys are kept in range as well.
        every: look at every so many forward passes.

    Raises:
        UsageError: no linear layer, or weights in half precision.

    Examples:
        >>> kept = stayfinite.keep_in_range(model)
        >>> with torch.autocast("cpu", dtype=torch.float16):
        ...     output = model(batch * 1e6)  # far beyond 65,504
        >>> bool(output.isfinite().all()), kept.moves[0].because
        (True, '0:in')
    """
    return InRange(model, every=every)


def _anatomy(model: nn.Module) -> Anatomy | None:
    try:
        return anatomy_of(model, untied=True)
    except AttributeError:  # wrapped, as by peft: its layers have other names
        return None
