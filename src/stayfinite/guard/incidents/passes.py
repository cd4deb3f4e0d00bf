"""What went through ``guard.forward``, remembered until it is known what became of the step.

On the healthy path this is a few tens of microseconds: the batch is held, not copied, and the generators are noted.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stayfinite.autopsy.incidents.batches import own_copy, tensors_of
from stayfinite.state.rng_memory import RngMemory

MOST_STEPS = 8
"""Steps that are remembered before they are heard of; on an accelerator that is one or two steps later."""

MOST_BYTES = 256 << 20
"""Batches of one step, under accumulation, that are held at the same time; of more, the oldest are let go."""


KEPT = 4
"""Steps whose batches are kept while an unusual one is on probation."""

MOST_PASSES = 1024
"""The same in number, for a loop that runs forward passes and takes no step."""


@dataclass(slots=True)
class Pass:
    """One forward pass."""

    batch: Any
    rng: dict[str, Any]
    """The generators before it."""
    autocast: torch.dtype | None
    """The precision that it ran in, whoever asked for it."""
    tensors: list[Tensor]
    """Those of the batch."""
    before: list[int]
    """How often each tensor of the batch had been written to; what has changed since is not what went in."""
    after: list[int] | None = None
    loss: Tensor | None = None
    """What the forward pass returned."""
    taken: Tensor | None = None
    """What went into backward: under accumulation a share of it."""
    led: Tensor | None = None
    """Where the step is to be run again bit for bit: the loss by which backward reached this pass."""
    arrived: list[Tensor] = field(default_factory=list)
    """And the gradient that arrived there: loss scale, share and all."""

    @property
    def changed(self) -> bool:
        """Whether the forward pass itself wrote to its batch."""
        return self.after is not None and self.after != self.before

    @property
    def overwritten(self) -> bool:
        """Whether the batch was written to since."""
        return self.after is not None and _written(self.tensors) != self.after

    @property
    def value(self) -> float:
        """The loss as it went into backward, or as it was returned; waits for the device."""
        loss = self.loss if self.taken is None else self.taken
        return math.nan if loss is None or loss.numel() != 1 else float(loss)

    @property
    def share(self) -> float | None:
        """The part of the loss that went into backward; None where it cannot be told."""
        if self.loss is None or self.taken is None or self.loss.numel() != 1:
            return None
        returned, taken = float(self.loss), float(self.taken)
        known = math.isfinite(returned) and math.isfinite(taken) and returned != 0
        return taken / returned if known else None


class Passes:
    """Remembers the forward passes of the last few steps.

    Arguments:
        device: the kind of device that the model is on.
    """

    def __init__(self, device: str) -> None:
        self.wanted = True
        """Turned off when no further incident will be captured."""
        self.watching = False
        """Whether the last batches are kept beyond their steps, because an unusual step is on probation."""
        self.replaying = False
        """Whether the step under way will be run again bit for bit."""
        self.let_go = 0
        """Passes of the step under way that were too large to be held."""
        self.kept: deque[tuple[int, list[Pass]]] = deque(maxlen=KEPT)
        """Steps and passes of the last batches, while they are."""
        self._pinned: tuple[int, list[Pass]] | None = None
        self._device = device
        self._rng = RngMemory()
        self._now: list[Pass] = []
        self._steps: deque[tuple[int, list[Pass]]] = deque(maxlen=MOST_STEPS)

    def begin(self, batch: Any) -> Pass | None:
        """A forward pass is about to run, inside of the autocast that it runs in; None if it is not remembered."""
        # Evaluation is no part of a step, and generators cannot be read while a CUDA graph is captured.
        if not (self.wanted or self.watching or self.replaying) or not torch.is_grad_enabled():
            return None
        if self._device == "cuda" and torch.cuda.is_current_stream_capturing():
            return None
        on = torch.is_autocast_enabled(self._device)
        tensors = tensors_of(batch)
        began = Pass(
            batch=own_copy(batch),
            rng=self._rng.capture(),
            autocast=torch.get_autocast_dtype(self._device) if on else None,
            tensors=tensors,
            before=_written(tensors),
        )
        self._now.append(began)
        self._let_go()
        return began

    def end(self, began: Pass | None, loss: Tensor) -> None:
        """It has returned this loss."""
        if began is not None:
            began.after = _written(began.tensors)
            began.loss = loss.detach() if isinstance(loss, Tensor) else None
            self.lead(began, loss)

    def lead(self, began: Pass | None, loss: Tensor) -> None:
        """Backward will reach the forward pass by this loss: what arrives there is part of what is run again."""
        began = began or (self._now[-1] if self._now else None)
        if self.replaying and began is not None and isinstance(loss, Tensor) and loss.requires_grad:
            began.led = loss.detach()
            loss.register_hook(began.arrived.append)

    @property
    def present(self) -> list[Pass]:
        """The passes of the step under way."""
        return self._now

    def take_back(self, began: Pass | None) -> None:
        """It has failed, and goes into no step."""
        self._now = [each for each in self._now if each is not began]

    def trained(self, loss: Tensor) -> None:
        """Backward was run on this loss, which belongs to the last pass that has none yet."""
        if self._now and self._now[-1].taken is None:
            self._now[-1].taken = loss.detach()

    def close(self, step: int) -> None:
        """All passes since the last call went into this step."""
        if self._now:
            self._steps.append((step, self._now))
            self._now = []
        self.let_go = 0

    def forget(self) -> None:
        """The step failed: its passes belong to no step."""
        self._now = []
        self.let_go = 0

    def of(self, step: int) -> list[Pass]:
        """The passes of a step, as far as they are remembered."""
        if self._pinned is not None and self._pinned[0] == step:
            return self._pinned[1]
        return next((passes for number, passes in self._steps if number == step), [])

    def settle(self, step: int) -> None:
        """What became of this step, and of those before it, is known."""
        while self._steps and self._steps[0][0] <= step:
            done = self._steps.popleft()
            if self.watching:
                self.kept.append(done)

    def watch(self, step: int) -> None:
        """This step is on probation: its batch is held, and so are the last ones that follow."""
        if self.watching:
            return
        self.watching = True
        self._pinned = (step, self.of(step))

    def look_away(self) -> None:
        """Nothing is on probation any more."""
        self.watching, self._pinned = False, None
        self.kept.clear()

    def stop(self) -> None:
        """Remember nothing any more."""
        self.wanted = False
        self._now.clear()
        self._steps.clear()

    def _let_go(self) -> None:
        if len(self._now) < 2:
            return
        held = [sum(tensor.nbytes for tensor in each.tensors) for each in self._now]
        while len(self._now) > 1 and (sum(held) > MOST_BYTES or len(held) > MOST_PASSES):
            del self._now[0], held[0]
            self.let_go += 1


def guilty(passes: list[Pass], *, loss_spike: bool) -> tuple[Pass, bool]:
    """The pass that made a step bad, and whether that is sure.

    It is the first whose loss is not finite; where the loss was a spike, the one with the largest. Where the losses do
    not tell, it may be any, and the last one stands for them.
    """
    if len(passes) == 1:
        return passes[0], True
    values = [each.value for each in passes]
    for each, value in zip(passes, values, strict=True):
        if not math.isfinite(value):
            return each, True
    return (passes[values.index(max(values))], True) if loss_spike else (passes[-1], False)


def share_of(passes: list[Pass]) -> float:
    """What the losses of a step were divided by, as a factor: 1 / k under accumulation, 1 where it cannot be told."""
    shares = [share for each in passes if (share := each.share) is not None]
    if any(each.taken is None for each in passes) or not shares:
        return 1.0
    middle = sorted(shares)[len(shares) // 2]
    return middle if 0 < middle <= 1 else 1.0


def _written(tensors: list[Tensor]) -> list[int]:
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:
        # Tensors made in inference mode do not count.
        return []
