"""What is learned from what: five modes, which loss a row has in each, and which parameters are frozen."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from stayfinite.errors import StateError, TrainingStopped

Mode = Literal["unconditional", "l2t", "t2l", "sequential", "random"]
Task = Literal["unconditional", "l2t", "t2l"]
Freeze = Literal["unreached", "stream"]
TASKS: tuple[Task, ...] = ("l2t", "t2l", "unconditional")
"""The order in which rows take turns in the mode `sequential`."""


def task_of(mode: Mode, turn: int, generator: torch.Generator) -> Task:
    """What a row is trained for; ``turn`` is its place in the epoch."""
    if mode == "sequential":
        return TASKS[turn % len(TASKS)]
    if mode == "random":
        return TASKS[int(torch.randint(len(TASKS), (), generator=generator))]
    return mode


def shares(mode: Mode) -> tuple[float, float]:
    """The share of rows that have a text loss, and that have a latent loss.

    It is that of the mode, not of the batch: so the mean over any batch, rank or group of batches is on the same scale.
    """
    return {"l2t": (1.0, 0.0), "t2l": (0.0, 1.0), "unconditional": (1.0, 1.0)}.get(mode, (2 / 3, 2 / 3))


def to_freeze(model: nn.Module, mode: Mode, freeze: Freeze) -> list[str]:
    """Names of the parameters that a mode freezes.

    l2t has no latent loss and t2l no text loss: `unreached` freezes what only leads to the output that is missing,
    which no gradient reaches and weight decay alone would wear away; `stream` freezes all of that side, as is wanted
    when one direction of a joint model is trained further. The other modes freeze nothing.
    """
    if mode not in ("l2t", "t2l"):
        return []
    side = "latent" if mode == "l2t" else "text"
    names = [name for name, _ in model.named_parameters()]
    if freeze == "stream":
        return [name for name in names if any(part.startswith(side) for part in name.split("."))]
    last = max(int(name.split(".")[1]) for name in names if name.startswith("blocks."))
    parts = ("query_norm", "project", "mlp")
    ends = (f"{side}_out.", *(f"blocks.{last}.{side}.{part}." for part in parts))
    return [name for name in names if name.startswith(ends)]


class Frozen:
    """Freezes parameters, and can tell whether they are still what they were.

    Arguments:
        model: the names are of its parameters.
        names: what is frozen; everything else is trained.
    """

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        self._model, self._names = model, frozenset(names)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in self._names)
        self._sums = self._checksums()
        self.check_flags()

    def in_words(self) -> str:
        """How large the model is, and how much of it is frozen."""
        sizes = {name: parameter.numel() for name, parameter in self._model.named_parameters()}
        held = sum(size for name, size in sizes.items() if name in self._names)
        told = f"a model of {sum(sizes.values()):,} parameters"
        return f"{told}; {held:,} in {len(self._names)} tensors are frozen in this mode" if held else told

    def check_flags(self) -> None:
        """Raise StateError unless exactly what should be frozen is."""
        wrong = [
            f"{name} is {'trained' if parameter.requires_grad else 'frozen'}"
            for name, parameter in self._model.named_parameters()
            if parameter.requires_grad == (name in self._names)
        ]
        if wrong:
            raise StateError(
                f"{len(wrong)} parameters are not frozen as this mode requires: {', '.join(wrong[:3])}",
                fix="do not change requires_grad after the program has set it",
            )

    def check(self, step: int) -> None:
        """Raise TrainingStopped if a frozen parameter has changed, bit for bit, or is trained.

        Call it after a checkpoint was loaded with :meth:`renew` before it.
        """
        self.check_flags()
        now = self._checksums()
        moved = [name for name, value in self._sums.items() if not torch.equal(now[name], value)]
        if moved:
            raise TrainingStopped(
                f"{len(moved)} frozen parameters changed by step {step}: {', '.join(moved[:3])}",
                step=step,
                code="params-frozen",
                fix="something other than the optimizer writes to them: look for .data, copy_ or a hook",
            )

    def renew(self) -> None:
        """Take what they are now for what they should be: weights were loaded."""
        self._sums = self._checksums()

    @torch.no_grad()
    def _checksums(self) -> dict[str, Tensor]:
        held = {name: p.detach() for name, p in self._model.named_parameters() if name in self._names}
        # Two sums of the bits, one with weights: a change of place changes the second.
        return {name: _sums(value) for name, value in held.items()}


def _sums(value: Tensor) -> Tensor:
    bits = value.contiguous().reshape(-1).view(torch.int32).to(torch.int64)
    places = torch.arange(len(bits), device=bits.device) % 8191 + 1
    return torch.stack([bits.sum(), (bits * places).sum()]).cpu()
