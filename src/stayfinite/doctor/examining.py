"""Run the preflight probes on the real model, optimizer, batch and loss after a program has ended."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.core.finding import Finding
from stayfinite.doctor.frames import short
from stayfinite.doctor.judges.course import has_known_loss, learned, not_learning, stalled
from stayfinite.doctor.moments import Backward, whole_model
from stayfinite.doctor.ranks import alone
from stayfinite.doctor.replay import Replay, find_replay
from stayfinite.doctor.told import PROVED, Told, told
from stayfinite.doctor.watching.watcher import Watcher
from stayfinite.inspection.preflight import inspect_training

ALWAYS = frozenset({
    "softmax-before-cross-entropy", "probability-loss-on-logits", "loss-broadcast", "causal-leak", "softmax-axis",
    "label-out-of-range", "token-id-out-of-range", "unregistered-module",
})  # fmt: skip
"""Causes reported whatever the loss does."""

WHERE_NOTHING_IS_LEARNED = frozenset({
    "lr-too-high", "lr-too-low", "lr-zero", "unscaled-input", "bad-init", "dead-units", "vanishing-gradient",
    "exploding-gradient", "detached-loss", "params-frozen", "zero-gradient", "cannot-overfit-batch", "input-ignored",
    "excess-dropout", "unused-parameters", "adam-eps-underflow", "samples-leak",
    "bf16-lost-updates", "bad-initial-loss", "wrong-reduction", "attention-unscaled",
})  # fmt: skip
WHERE_LITTLE_IS_LEARNED = frozenset({"dead-units", "bad-init"})
"""Causes that leave only the biases to learn, so the loss falls a little."""
LITTLE = 0.3
SURE = 0.5
WEIGHTS = {
    "lr-too-high": 1.4, "loss-broadcast": 2.3, "softmax-before-cross-entropy": 2.3, "dead-units": 1.35,
    "bad-init": 1.35,
    "unused-parameters": 1.0, "cannot-overfit-batch": 0.9, "input-ignored": 1.1, "exploding-gradient": 1.1,
}  # fmt: skip
"""Weights of causes that explain more or less than the default."""


NOT_REPEATED = (
    "re-running the first step gave a different loss. Seed its random numbers, and keep the step free of side effects"
)


NOT_KEPT = "the weights before the first step are too large to keep a copy of"


class Examiner:
    """Re-runs an early step and applies the probes to it."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.why_not = ""
        self.seconds = 0.0

    def findings(self) -> Iterator[Told]:
        """Probe findings that the course of the loss supports."""
        watcher = self._watcher
        program = watcher.program
        stepping = [each for each in program.optimizers.values() if each.steps]
        if not watcher.steps.early or program.bad is not None:
            self.why_not = "no backward pass was recorded"
            return
        if program.by_hand or not stepping:
            self.why_not = "the program steps without a torch optimizer"
            return
        start = time.monotonic()
        done: set[int] = set()
        for early in watcher.steps.early:
            optimizer = early.optimizer if len(stepping) > 1 else stepping[0].optimizer
            if optimizer is None or id(optimizer) in done or not early.weights:
                continue
            model = whole_model(program, early.backward)
            with (
                alone(model),
                _as_it_was(model, optimizer, early.weights, early.modes),
                scale_as_it_was(early.backward) as set_scale,
            ):
                replay = find_replay(early.backward, model)
                if replay is None:
                    continue
                done.add(id(optimizer))
                set_scale(1.0)  # the probes take steps without the scaler
                found = _inspect(model, optimizer, replay, stalled=stalled(program))
            yield from self._that_matter(found, optimizer, early.backward, alone=len(stepping) == 1)
        self.seconds = time.monotonic() - start
        if not any(early.weights for early in watcher.steps.early):
            self.why_not = NOT_KEPT
        elif not done:
            self.why_not = NOT_REPEATED
        elif len(done) < len(stepping):
            others = [each for each in stepping if id(each.optimizer) not in done]
            named = ", ".join(f"{type(each.optimizer).__name__} ({short(each.place)})" for each in others)
            self.why_not = f"the first step of {named} could not be re-run"

    def _that_matter(self, found: list[Finding], optimizer: Any, backward: Backward, *, alone: bool) -> Iterator[Told]:
        """With several optimizers, where losses may rise by design, keep only what is always a fault."""
        program = self._watcher.program
        flat = alone and not_learning(program)
        little = alone and has_known_loss(program) and not learned(program.main_loss(), LITTLE)
        for finding in found:
            if finding.severity == "info" or finding.confidence < SURE:
                continue
            if finding.cause == "lr-too-high" and program.clips and "SGD" in type(optimizer).__name__:
                continue  # the probe does not clip
            if (
                finding.cause in ALWAYS
                or (little and finding.cause in WHERE_LITTLE_IS_LEARNED)
                or (flat and finding.cause in WHERE_NOTHING_IS_LEARNED)
            ):
                yield _told(finding, backward)


@contextmanager
def scale_as_it_was(backward: Backward) -> Iterator[Callable[[float], None]]:
    """Give a GradScaler the scale it had at a backward call within this context; yields a way to change the scale."""
    if backward.scaler is None or not isinstance(backward.scaler[0]._scale, Tensor):
        yield lambda _: None
        return
    scaler, scale = backward.scaler
    now = scaler._scale

    def set_scale(value: float) -> None:
        scaler._scale = torch.full_like(now, value)

    set_scale(scale)
    try:
        yield set_scale
    finally:
        scaler._scale = now


def _inspect(model: nn.Module, optimizer: Any, replay: Replay, *, stalled: bool) -> list[Finding]:
    def forward(batch: Any) -> Tensor:
        return replay.forward(batch)

    with torch.enable_grad():
        return list(inspect_training(model, optimizer, replay.batch, forward, steps=10, stalled=stalled).findings)


def _told(finding: Finding, backward: Backward) -> Told:
    held = backward.at.frames[0]
    place = (held.code.co_filename, held.line)
    return told(
        finding.cause,
        finding.evidence,
        known_by=PROVED,
        place=place,
        where=finding.where or short(place),
        fix=finding.fix,
        confidence=finding.confidence,
        severity=finding.severity,
        weight=WEIGHTS.get(finding.cause, 1.2),
    )


@contextmanager
def _as_it_was(
    model: nn.Module, optimizer: Any, weights: dict[int, Tensor], training: dict[int, bool]
) -> Iterator[None]:
    """Restore the initial weights and optimizer state within this context."""
    tensors = [*model.parameters(), *model.buffers()]
    now = [(tensor, tensor.detach().clone()) for tensor in tensors if id(tensor) in weights]
    state, rates = optimizer.state, [group.get("lr") for group in optimizer.param_groups]
    modes = [(module, module.training) for module in model.modules()]
    with torch.no_grad():
        for tensor, _ in now:
            if tensor.shape == weights[id(tensor)].shape:
                tensor.copy_(weights[id(tensor)])
    optimizer.state = defaultdict(dict)
    for group, before in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(before, float):
            group["lr"] = group.get("initial_lr", before)
    for module in model.modules():
        module.training = training.get(id(module), module.training)
    try:
        yield
    finally:
        optimizer.state = state
        for group, before in zip(optimizer.param_groups, rates, strict=True):
            if before is not None:
                group["lr"] = before
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for tensor, value in now:
                if tensor.shape == value.shape:
                    tensor.copy_(value)
