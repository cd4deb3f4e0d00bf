"""The ways of taking a step that are compared: none, clipping, other rules, the guard under its policies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stayfinite import Guard, Policy, TrainingDiverged

Forward = Callable[[Any], Tensor]
CLIP = 1.0
"""The norm that the clipping arm clips to."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a training trains with."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: Any
    max_norm: float | None
    forward: Forward | None


class Loop(Protocol):
    """What a training does with its loss."""

    def forward(self, batch: Any) -> Tensor:
        """The loss of a batch."""

    def backward(self, loss: Tensor) -> None:
        """Add a loss to the step."""

    def step(self, loss: Tensor | None = None) -> None:
        """Take the step."""


class Arm:
    """One way of taking steps, for one training. ``counts`` tells what it did."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def take(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: Any = None,
        *,
        max_norm: float | None = None,
        forward: Forward | None = None,
    ) -> Loop:
        """The loop for these parts; ``max_norm`` is what the training itself clips to, whoever takes its steps."""
        return self.loop(Parts(model, optimizer, scheduler, max_norm, forward))

    def loop(self, parts: Parts) -> Loop:
        """The loop for these parts."""
        return Plain(self.counts, parts)

    def close(self) -> None:
        """The training is over."""


class Plain:
    """The loop that everybody writes."""

    def __init__(self, counts: Counter[str], parts: Parts) -> None:
        self.counts, self.optimizer, self.scheduler = counts, parts.optimizer, parts.scheduler
        self.parameters = [each for group in parts.optimizer.param_groups for each in group["params"]]
        self.max_norm, self.function = parts.max_norm, parts.forward
        self.loss = 0.0

    def forward(self, batch: Any) -> Tensor:
        assert self.function is not None
        return self.function(batch)

    def backward(self, loss: Tensor) -> None:
        self.loss += float(loss.detach())
        loss.backward()

    def step(self, loss: Tensor | None = None) -> None:
        if loss is not None:
            self.backward(loss)
        norm = float("inf") if self.max_norm is None else self.max_norm
        total = nn.utils.clip_grad_norm_(self.parameters, norm)
        self.counts["steps"] += 1
        if self.wanted(self.loss, float(total)):
            self.optimizer.step()
            if self.scheduler is not None:
                self.scheduler.step()
        else:
            self.counts["refused"] += 1
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = 0.0

    def wanted(self, loss: float, norm: float) -> bool:  # noqa: ARG002 - for rules that look
        """Whether the optimizer steps."""
        return True


class Clip(Arm):
    """``clip_grad_norm_(parameters, 1.0)`` at every step."""

    def loop(self, parts: Parts) -> Loop:
        return Plain(self.counts, replace(parts, max_norm=min(parts.max_norm or CLIP, CLIP)))


class SkipLoop(Plain):
    """OLMo-core's rule: skip a step whose loss or norm is above the mean of the last 128 by more than 6 deviations.

    As there, it begins once half of the window is there, and what was skipped enters the window too.
    """

    WINDOW, SIGMAS = 128, 6.0

    def __init__(self, counts: Counter[str], parts: Parts) -> None:
        super().__init__(counts, parts)
        self.windows: tuple[deque[float], deque[float]] = (deque(maxlen=self.WINDOW), deque(maxlen=self.WINDOW))

    def wanted(self, loss: float, norm: float) -> bool:
        fine = True
        for window, value in zip(self.windows, (loss, norm), strict=True):
            if len(window) >= self.WINDOW // 2:
                deviation, mean = torch.std_mean(torch.tensor(window, dtype=torch.float64))
                fine = fine and value - float(mean) <= self.SIGMAS * float(deviation)
            window.append(value)
        return fine


class SkipBySigma(Arm):
    """See :class:`SkipLoop`."""

    def loop(self, parts: Parts) -> Loop:
        return SkipLoop(self.counts, parts)


class Guarded(Arm):
    """The guard under a policy.

    Arguments:
        policy: which one.
        knows_forward: whether the guard is told the forward pass, where the training has one to tell.
    """

    def __init__(self, policy: Policy, *, knows_forward: bool = False) -> None:
        super().__init__()
        self.policy, self.knows_forward = policy, knows_forward
        self.guards: list[Guard] = []
        self.heard: Counter[str] = Counter()

    def loop(self, parts: Parts) -> Loop:
        guard = Guard(
            parts.model,
            parts.optimizer,
            parts.scheduler,
            max_norm=parts.max_norm,
            policy=self.policy,
            forward=parts.forward if self.knows_forward else None,
            console=_Ear(self.heard),
        )
        self.guards.append(guard)
        return GuardLoop(self, guard, parts.forward)

    def close(self) -> None:
        for guard in self.guards:
            guard.close()
        self.counts.update(self.heard)


class GuardLoop:
    """A guarded loop; one that the guard stops stays where it is."""

    def __init__(self, arm: Guarded, guard: Guard, function: Forward | None) -> None:
        self.arm, self.guard, self.function = arm, guard, function
        self.seen = 0

    def forward(self, batch: Any) -> Tensor:
        if self.arm.knows_forward and not self.arm.counts["stopped"]:
            return self.guard.forward(batch)
        assert self.function is not None
        return self.function(batch)

    def backward(self, loss: Tensor) -> None:
        if not self.arm.counts["stopped"]:
            self.guard.backward(loss)

    def step(self, loss: Tensor | None = None) -> None:
        counts = self.arm.counts
        counts["steps"] += 1
        if counts["stopped"]:
            return
        try:
            self.guard.step(loss)
        except TrainingDiverged:
            counts["stopped"] += 1
        decision = self.guard.decisions[-1]
        counts["refused"] += decision.refused and decision.signals.finite
        counts["not finite"] += decision.refused and not decision.signals.finite
        counts[str(decision.action)] += 1
        if decision.notable:
            counts[str(decision.code)] += 1


class _Ear:
    """Hears what the guard says, and counts what is no decision about a single step."""

    def __init__(self, heard: Counter[str]) -> None:
        self.heard = heard

    def print(self, line: Any) -> None:
        text = str(line)
        self.heard["new-phase"] += ": new phase. " in text
        self.heard["rollback"] += ": rolled back to step" in text


def make_arm(name: str) -> Arm:
    """A fresh arm by its name."""
    if name == "clip":
        return Clip()
    if name == "olmo":
        return SkipBySigma()
    if name == "none":
        return Arm()
    policy = Policy.refuse_spikes() if name == "refuse" else Policy()
    return Guarded(policy, knows_forward=name == "forward")
