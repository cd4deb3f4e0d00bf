"""Inside the second run: count to the bad step, compare every loss, trace that step, answer, exit."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stayfinite.autopsy.tracing.tracer import Tracer
from stayfinite.doctor.frames import user_frames
from stayfinite.doctor.moments import Backward, loss_in, moment
from stayfinite.doctor.second_run.plan import Answer, Plan
from stayfinite.doctor.second_run.traced_step import TracedStep
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.doctor.watching.looking import leaves_of
from stayfinite.state.rng import restore_rng


class PassTwo:
    """Hooks that track where the program is.

    Arguments:
        folder: holds the plan, and receives the answer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plan = Plan.read(folder)
        self._seams = StandIns()
        self._steps = 0
        self._backwards = 0
        self._in_backward = False
        self._differs: tuple[int, float, float] | None = None
        self._tracer: Tracer | None = None
        self._batch: Any = None
        self._models: dict[int, nn.Module] = {}

    def begin(self) -> None:
        """Restore the generators of the first run and install the hooks."""
        self._seams.keep(register_optimizer_step_post_hook(self._after_step).remove)
        self._seams.put(Tensor, "backward", self._tensor_backward)
        self._seams.put(torch.autograd, "backward", self._autograd_backward)
        self._seams.put(Optimizer, "__init__", self._build_optimizer)
        self._seams.put(_BaseDataLoaderIter, "__next__", self._next_batch)
        restore_rng(self._plan.generators)
        if not self._plan.has_optimizer and self._plan.backward == 1:
            self._trace()

    def end(self) -> None:
        """Answer that the program ended before its bad step."""
        self._seams.off()
        Answer(differs=self._differs, error="it ended before that step").write(self._folder)

    def _trace(self) -> None:
        if self._tracer is None:
            self._tracer = Tracer(nn.Module())
            self._tracer.__enter__()
            self._seams.keep(nn.modules.module.register_module_forward_pre_hook(self._note_module).remove)

    def _note_module(self, module: nn.Module, _args: Any) -> None:
        self._models.setdefault(id(module), module)

    def _build_optimizer(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        returned = original(*args, **kwargs)
        if self._plan.has_optimizer and self._plan.trace_after == 0:
            self._trace()
        return returned

    def _after_step(self, *_: Any) -> None:
        self._steps += 1
        if self._steps == self._plan.trace_after:
            self._trace()

    def _next_batch(self, original: Any, iterator: Any) -> Any:
        self._batch = original(iterator)
        return self._batch

    def _tensor_backward(self, original: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        return self._run_backward(original, loss, (loss, *args), kwargs)

    def _autograd_backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        return self._run_backward(original, loss_in(args, kwargs), args, kwargs)

    def _run_backward(self, original: Any, loss: Any, args: Any, kwargs: Any) -> Any:
        if self._in_backward or not isinstance(loss, Tensor):
            return original(*args, **kwargs)
        self._backwards += 1
        last = self._backwards >= self._plan.backward
        number = self._compare(loss)
        traced = self._traced_step(loss) if last else None
        if traced is not None and not math.isfinite(number):
            self._answer(traced.explain_loss())
        self._in_backward = True
        try:
            returned = original(*args, **kwargs)
        finally:
            self._in_backward = False
        if traced is not None:
            self._answer(traced.explain_gradients())
        if not self._plan.has_optimizer and self._backwards == self._plan.backward - 1:
            self._trace()
        return returned

    def _compare(self, loss: Tensor) -> float:
        """The loss as a float. Records the first difference from the first run."""
        if self._tracer is None:
            number = float(loss.detach()) if loss.numel() == 1 else math.nan
        else:
            with self._tracer.paused():
                number = float(loss.detach()) if loss.numel() == 1 else math.nan
        at = self._backwards - 1
        if self._differs is None and at < len(self._plan.losses):
            before = self._plan.losses[at]
            if before != number and not (math.isnan(before) and math.isnan(number)):
                self._differs = at, before, number
        return number

    def _traced_step(self, loss: Tensor) -> TracedStep | None:
        if self._tracer is None:
            self._answer(None)
            return None
        # Skip our own frame and the two hooks above it.
        frames = user_frames(sys._getframe(3))
        with self._tracer.paused():
            backward = Backward(moment(frames), loss.detach(), None, None)
            return TracedStep(self._tracer, loss, leaves_of(loss), backward, self._batch, [*self._models.values()])

    def _answer(self, finding: dict[str, Any] | None) -> None:
        """Write the answer and exit at once, so that the program's exit actions do not run twice."""
        error = "" if finding else "the step was finite in the second run"
        Answer(differs=self._differs, finding=finding, error=error).write(self._folder)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
