"""Record the passes through ``guard.forward`` until their step is decided.

Costs a few tens of microseconds on the healthy path: the batch is referenced, not copied, and the generator states are
noted.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from stayfinite.autopsy.incidents.batch_form import own_copy, tensors_of
from stayfinite.errors import UsageError
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.guard.telling.groups import Described, Groups
from stayfinite.measure.loss_collector import LossCollector
from stayfinite.state.rng import RngMemory

MOST_STEPS = 8
"""Steps to keep until they are decided; on an accelerator that is one or two steps later."""

MOST_BYTES = 256 << 20
"""Most bytes of batches kept for one step under accumulation; beyond it the oldest are dropped."""


KEPT = 4
"""Steps whose batches are kept during a probation."""

MOST_PASSES = 1024
"""Most passes kept, for a loop that runs forward passes without steps."""


@dataclass(slots=True)
class Pass:
    """One forward pass."""

    batch: Any
    rng: dict[str, Any]
    """Generator states before it."""
    autocast: str | None
    """Autocast dtype of the pass; None if off."""
    tensors: list[Tensor]
    """Tensors of the batch."""
    before: list[int]
    """Version counters of the batch's tensors before the pass."""
    after: list[int] | None = None
    loss: Tensor | None = None
    """Result of the forward pass."""
    taken: Tensor | None = None
    """Loss that went into backward: a share of it under accumulation."""
    led: Tensor | None = None
    """For bitwise re-runs, the loss from which backward reached this pass."""
    arrived: list[Tensor] = field(default_factory=list)
    """The gradient that arrived there, including loss scale and share."""

    @property
    def changed(self) -> bool:
        """Whether the forward pass wrote to its batch."""
        return self.after is not None and self.after != self.before

    @property
    def overwritten(self) -> bool:
        """Whether the batch was written to since."""
        return self.after is not None and _written(self.tensors) != self.after

    @property
    def value(self) -> float:
        """Loss as used in backward, or as returned; syncs with the device."""
        loss = self.loss if self.taken is None else self.taken
        return math.nan if loss is None or loss.numel() != 1 else float(loss)

    @property
    def share(self) -> float | None:
        """Share of the loss that went into backward; None if unknown."""
        if self.loss is None or self.taken is None or self.loss.numel() != 1:
            return None
        returned, taken = float(self.loss), float(self.taken)
        known = math.isfinite(returned) and math.isfinite(taken) and returned != 0
        return taken / returned if known else None


class Passes:
    """Forward passes of the last few steps."""

    def __init__(self, device: str) -> None:
        self.wanted = True
        """Turned off when no further incident will be captured."""
        self.watching = False
        """Whether recent batches are kept because an unusual step is on probation."""
        self.replaying = False
        """Whether the current step will be run again bitwise."""
        self.let_go = 0
        """Passes of the current step that were dropped because of their size."""
        self.kept: deque[tuple[int, list[Pass]]] = deque(maxlen=KEPT)
        """Recent steps and their passes, while watching."""
        self._pinned: tuple[int, list[Pass]] | None = None
        self._device = device
        self._rng = RngMemory()
        self._now: list[Pass] = []
        self._steps: deque[tuple[int, list[Pass]]] = deque(maxlen=MOST_STEPS)

    def begin(self, batch: Any) -> Pass | None:
        """Record the start of a forward pass, inside its autocast; None if it is not recorded."""
        # Evaluation is not part of a step, and generators cannot be read during a CUDA graph capture.
        if not (self.wanted or self.watching or self.replaying) or not torch.is_grad_enabled():
            return None
        if self._device == "cuda" and torch.cuda.is_current_stream_capturing():
            return None
        on = torch.is_autocast_enabled(self._device)
        tensors = tensors_of(batch)
        began = Pass(
            batch=own_copy(batch),
            rng=self._rng.capture(),
            autocast=str(torch.get_autocast_dtype(self._device)).removeprefix("torch.") if on else None,
            tensors=tensors,
            before=_written(tensors),
        )
        self._now.append(began)
        self._let_go()
        return began

    def end(self, began: Pass | None, loss: Tensor) -> None:
        """Record the loss that the pass returned."""
        if began is not None:
            began.after = _written(began.tensors)
            began.loss = loss.detach() if isinstance(loss, Tensor) else None
            self.lead(began, loss)

    def lead(self, began: Pass | None, loss: Tensor) -> None:
        """Record the gradient that reaches this loss in backward, for a bitwise re-run."""
        began = began or (self._now[-1] if self._now else None)
        if self.replaying and began is not None and isinstance(loss, Tensor) and loss.requires_grad:
            began.led = loss.detach()
            loss.register_hook(began.arrived.append)

    @property
    def present(self) -> list[Pass]:
        """Passes of the current step."""
        return self._now

    def take_back(self, began: Pass | None) -> None:
        """Drop a pass that failed."""
        self._now = [each for each in self._now if each is not began]

    def trained(self, loss: Tensor) -> None:
        """Record that backward ran on this loss, for the last pass."""
        if self._now and self._now[-1].taken is None:
            self._now[-1].taken = loss.detach()

    def close(self, step: int) -> None:
        """Assign all passes since the last call to this step."""
        if self._now:
            self._steps.append((step, self._now))
            self._now = []
        self.let_go = 0

    def forget(self) -> None:
        """Drop the passes of a failed step."""
        self._now = []
        self.let_go = 0

    def of(self, step: int) -> list[Pass]:
        """Recorded passes of a step."""
        if self._pinned is not None and self._pinned[0] == step:
            return self._pinned[1]
        return next((passes for number, passes in self._steps if number == step), [])

    def settle(self, step: int) -> None:
        """Release this step and earlier ones: they are decided."""
        while self._steps and self._steps[0][0] <= step:
            done = self._steps.popleft()
            if self.watching:
                self.kept.append(done)

    def watch(self, step: int) -> None:
        """Keep the batch of this step on probation, and the last ones after it."""
        if self.watching:
            return
        self.watching = True
        self._pinned = (step, self.of(step))

    def look_away(self) -> None:
        """End the probation."""
        self.watching, self._pinned = False, None
        self.kept.clear()

    def stop(self) -> None:
        """Stop recording."""
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
    """Return the pass that made a step bad, and whether that is certain.

    The first with a non-finite loss; for a loss spike the one with the largest loss. Otherwise it may be any, and the
    last one is returned.
    """
    if len(passes) == 1:
        return passes[0], True
    values = [each.value for each in passes]
    for each, value in zip(passes, values, strict=True):
        if not math.isfinite(value):
            return each, True
    return (passes[values.index(max(values))], True) if loss_spike else (passes[-1], False)


def share_of(passes: list[Pass]) -> float:
    """Factor of the losses in a step: 1 / k under accumulation, 1 if unknown."""
    shares = [share for each in passes if (share := each.share) is not None]
    if any(each.taken is None for each in passes) or not shares:
        return 1.0
    middle = sorted(shares)[len(shares) // 2]
    return middle if 0 < middle <= 1 else 1.0


def _written(tensors: list[Tensor]) -> list[int]:
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:
        # Inference tensors have no version counter.
        return []


@dataclass(eq=False)
class ForwardPass:
    """Runs the forward function of the guard.

    Arguments:
        function: ``forward(batch) -> loss``, or None.
        collector: told which batch the next loss comes from.
        describe: describes each row of a batch, for incidents.
        groups: counts batches by the groups of their rows.
    """

    function: Callable[[Any], Tensor] | None
    describe: Callable[[Any], Described] | None
    collector: LossCollector
    precision: PrecisionControl
    passes: Passes
    groups: Groups

    def __call__(self, batch: Any) -> Tensor:
        """Return the loss of a batch.

        Raises:
            UsageError: there is no forward function.
        """
        if self.function is None:
            raise UsageError(
                "guard.forward() needs a forward function",
                fix="build it with Guard(..., forward=lambda batch: model(**batch).loss), or compute the loss yourself",
            )
        with self.precision.autocast(), self.recorded(batch) as passed:
            loss = self.function(batch)
            passed(loss)
        return loss

    @contextmanager
    def recorded(self, batch: Any) -> Iterator[Callable[[Tensor], None]]:
        """Context for a forward pass on this batch, inside its autocast; call the yielded function with the loss."""
        self.collector.see(batch)
        # Evaluation is not part of a step.
        if torch.is_grad_enabled():
            self.groups.see(batch)
        began = self.passes.begin(batch)
        try:
            yield partial(self.passes.end, began)
        except BaseException:
            self.passes.take_back(began)
            raise
