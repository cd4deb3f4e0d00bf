"""What a row is trained on: its task and noise, what the model predicts, its losses, and what a mode freezes.

Losses are means over rows, robust to empty masks, padding and batch splits: each row has its own mean, 0 if it has no
target. The sum is divided by the expected number of rows of the mode, not by the actual one. So there is no division by
zero, and gradients are the same with any accumulation or number of processes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stayfinite.errors import StateError, TrainingStopped
from stayfinite.state.frozen import fingerprint
from stayfinite.state.parts import unwrapped

Batch = dict[str, Tensor]
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
        moved = [name for name, value in self._sums.items() if now[name] != value]
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

    def _checksums(self) -> dict[str, str]:
        named = self._model.named_parameters()
        return {name: fingerprint({name: p.detach()}) for name, p in named if name in self._names}


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


def smooth_bound(loss: Tensor, bound: float) -> Tensor:
    """The loss up to half the bound, then approaching the bound asymptotically. 0 means no bound.

    Unlike a clamp, its gradient never becomes 0, so that the worst row still learns. NaN and infinity pass through for
    the guard to see.
    """
    if not bound:
        return loss
    half = 0.5 * bound
    beyond = (loss - half).clamp_min(0.0) / half
    # min() instead of where(): no branch whose discarded gradient could be NaN.
    return torch.minimum(loss, loss.new_tensor(half)) + half * beyond / (1.0 + beyond)


def masked_cross_entropy(logits: Tensor, ids: Tensor, counted: Tensor) -> Tensor:
    """Mean over counted tokens per row; 0, still attached to the graph, for a row without any.

    Arguments:
        logits: (B, L, V).
        ids: (B, L).
        counted: (B, L) hidden tokens that are not padding.
    """
    each = F.cross_entropy(logits.float().transpose(1, 2), ids, reduction="none")  # (B, L)
    # Select instead of multiply: 0 x inf is NaN.
    return torch.where(counted, each, 0.0).sum(1) / counted.sum(1).clamp_min(1)


def squared_error(said: Tensor, wanted: Tensor) -> Tensor:
    """Mean squared error per row, in float32."""
    return (said.float() - wanted.float()).square().flatten(1).mean(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights and bound of the losses."""

    text: float = 1.0
    latent: float = 0.1
    bound: float = 0.0


class Objective:
    """``objective(batch) -> loss``. Everything random is in the batch.

    Arguments:
        model: may be wrapped for several processes.
        latest: receives the detached losses by name.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mode: Mode,
        schedule: Schedule,
        prediction: Prediction,
        weights: Weights,
        latest: Callable[[dict[str, Tensor]], None] = lambda _: None,
    ) -> None:
        self._model, self._latest = model, latest
        inner: Any = unwrapped(model)
        self._hidden_token = int(inner.hidden_token)
        self._schedule, self._prediction, self.weights = schedule, prediction, weights
        self.shares = shares(mode)

    def __call__(self, batch: Batch) -> Tensor:
        """Weighted sum of the losses of a batch."""
        text, latent = self.rows(batch)
        parts: dict[str, Tensor] = {}
        total = text.new_zeros(())
        weights = {"text": self.weights.text, "latent": self.weights.latent}
        for (name, weight), losses, share in zip(weights.items(), (text, latent), self.shares, strict=True):
            if share:
                parts[name] = smooth_bound(losses, self.weights.bound).sum() / (share * len(losses))
                total = total + weight * parts[name]
        self._latest({name: part.detach() for name, part in parts.items()})
        return total

    def rows(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Text loss and latent loss per row, (B) each; 0 if a row has none."""
        device = next(self._model.parameters()).device
        held = {name: item.to(device, non_blocking=True) for name, item in batch.items()}
        signal, sigma = (each[:, None, None] for each in amounts(self._schedule, held["latent_time"]))
        clean = ~held["has_latent_loss"][:, None, None]
        noisy = torch.where(clean, held["latent"], signal * held["latent"] + sigma * held["noise"])
        ids = held["ids"].masked_fill(held["covered"], self._hidden_token)
        logits, said = self._model(ids, held["mask"], noisy, held["text_time"], held["latent_time"])
        text = masked_cross_entropy(logits, held["ids"], held["covered"])
        wanted = target(self._prediction, held["latent"], held["noise"], signal, sigma)
        return text, torch.where(held["has_latent_loss"], squared_error(said, wanted), 0.0)
