"""What a row is trained on: its task, its noise, what the model predicts, and which parameters a mode freezes."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from stayfinite.errors import StateError, TrainingStopped

Mode = Literal["unconditional", "l2t", "t2l", "sequential", "random"]
Task = Literal["unconditional", "l2t", "t2l"]
Freeze = Literal["unreached", "stream"]
TASKS: tuple[Task, ...] = ("l2t", "t2l", "unconditional")
"""Order of tasks in mode `sequential`."""


def task_of(mode: Mode, turn: int, generator: torch.Generator) -> Task:
    """Task of a row; ``turn`` is its place in the epoch."""
    if mode == "sequential":
        return TASKS[turn % len(TASKS)]
    if mode == "random":
        return TASKS[int(torch.randint(len(TASKS), (), generator=generator))]
    return mode


def shares(mode: Mode) -> tuple[float, float]:
    """Expected share of rows with a text loss and with a latent loss.

    A property of the mode rather than the batch, so that means over any batch or rank are on the same scale.
    """
    return {"l2t": (1.0, 0.0), "t2l": (0.0, 1.0), "unconditional": (1.0, 1.0)}.get(mode, (2 / 3, 2 / 3))


def to_freeze(model: nn.Module, mode: Mode, freeze: Freeze) -> list[str]:
    """Names of the parameters a mode freezes.

    l2t has no latent loss and t2l no text loss. `unreached` freezes parameters that only feed the missing output, which
    get no gradient and would only decay. `stream` freezes that whole side, to train one direction of a joint model
    further. Other modes freeze nothing.
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
    """Freezes parameters and verifies that they do not change.

    Arguments:
        names: parameters to freeze; all others are trained.
    """

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        self._model, self._names = model, frozenset(names)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in self._names)
        self._sums = self._checksums()
        self.check_flags()

    def in_words(self) -> str:
        """Model size and frozen share, in words."""
        sizes = {name: parameter.numel() for name, parameter in self._model.named_parameters()}
        held = sum(size for name, size in sizes.items() if name in self._names)
        told = f"a model of {sum(sizes.values()):,} parameters"
        return f"{told}; {held:,} in {len(self._names)} tensors are frozen in this mode" if held else told

    def check_flags(self) -> None:
        """Raise StateError unless exactly these parameters are frozen."""
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
        """Raise TrainingStopped if a frozen parameter has changed.

        After loading a checkpoint, call :meth:`renew` first.
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
        """Accept the current values, after loading weights."""
        self._sums = self._checksums()

    @torch.no_grad()
    def _checksums(self) -> dict[str, Tensor]:
        held = {name: p.detach() for name, p in self._model.named_parameters() if name in self._names}
        # Two checksums of the bits, one weighted by position to detect permutations.
        return {name: _sums(value) for name, value in held.items()}


def _sums(value: Tensor) -> Tensor:
    bits = value.contiguous().reshape(-1).view(torch.int32).to(torch.int64)
    places = torch.arange(len(bits), device=bits.device) % 8191 + 1
    return torch.stack([bits.sum(), (bits * places).sum()]).cpu()


Schedule = Literal["linear", "cosine", "sigmoid"]
LEAST, MOST = 1e-4, 1.0 - 1e-4
"""Bounds of the kept variance: at the very ends, sample or noise could not be recovered."""


def kept(schedule: Schedule, time: Tensor) -> Tensor:
    """Share of the variance that is signal at these times, in float32: from 1 to almost 0."""
    t = time.float().clamp(0.0, 1.0)
    if schedule == "linear":  # linearly rising noise rate
        left = torch.exp(-(0.1 * t + 0.5 * 19.9 * t.square()))
    elif schedule == "cosine":
        left = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square() / math.cos(0.008 / 1.008 * math.pi / 2) ** 2
    else:
        ends = torch.sigmoid(torch.tensor([3.0, -3.0]))
        left = (torch.sigmoid(3.0 - 6.0 * t) - ends[1].to(t.device)) / (ends[0] - ends[1]).to(t.device)
    return left.clamp(LEAST, MOST)


def amounts(schedule: Schedule, time: Tensor) -> tuple[Tensor, Tensor]:
    """Amplitudes of sample and noise at these times; their squares sum to 1."""
    left = kept(schedule, time)
    return left.sqrt(), (1.0 - left).sqrt()


def hidden(schedule: Schedule, time: Tensor) -> Tensor:
    """Share of tokens hidden at these times."""
    return 1.0 - kept(schedule, time)


Prediction = Literal["epsilon", "x0", "v"]


def target(kind: Prediction, sample: Tensor, noise: Tensor, signal: Tensor, sigma: Tensor) -> Tensor:
    """The model's target; ``signal`` and ``sigma`` are the amplitudes of sample and noise."""
    if kind == "epsilon":
        return noise
    return sample if kind == "x0" else signal * noise - sigma * sample


def both(kind: Prediction, said: Tensor, noisy: Tensor, signal: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Sample and noise from the model's prediction."""
    if kind == "epsilon":
        return (noisy - sigma * said) / signal, said
    if kind == "x0":
        return said, (noisy - signal * said) / sigma
    return signal * noisy - sigma * said, sigma * noisy + signal * said
