"""Inside the second run: count to the bad step, compare every loss, trace that step, answer, exit."""

from __future__ import annotations

import math
import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stayfinite.autopsy.autopsy import origin_in_words
from stayfinite.autopsy.conclusions.conclude import conclude
from stayfinite.autopsy.conclusions.conclusion import Evidence
from stayfinite.autopsy.conclusions.readings import Readings
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.trace import Trace
from stayfinite.autopsy.tracing.events import Health
from stayfinite.autopsy.tracing.origin import Origin, find_origins
from stayfinite.autopsy.tracing.tracer import Tracer
from stayfinite.autopsy.worlds.worlds import Materials
from stayfinite.doctor.explaining import origin_place, sentence
from stayfinite.doctor.frames import user_frames
from stayfinite.doctor.moments import Backward, Together, inside_another, meet_backward, moment
from stayfinite.doctor.replay import is_data
from stayfinite.doctor.second_run.starting import Answer, Plan
from stayfinite.doctor.slicing import quoted
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.inspection.bench.graph_walk import leaves_of
from stayfinite.state.rng import restore_rng

MOST_ROWS = 8


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step traced up to its loss."""

    tracer: Tracer
    loss: Tensor
    leaves: list[Tensor]
    """Leaves of the loss."""
    backward: Backward
    loaded: Any
    """The last batch from a loader."""
    models: list[nn.Module]

    def explain_loss(self) -> dict[str, Any] | None:
        """Finding for a non-finite loss."""
        with self.tracer.paused(), torch.no_grad():
            self._name_data(self._batch())
            writer = self.tracer.writer_of(self.loss)
            origins = [] if writer is None else find_origins(self.tracer, [writer])
            return self._finding(origins, math.nan)

    def explain_gradients(self) -> dict[str, Any] | None:
        """Finding for non-finite gradients after backward; None if all are finite."""
        self.tracer.close()
        with self.tracer.paused(), torch.no_grad():
            bad = [p.grad for p in self.leaves if p.grad is not None and not bool(p.grad.isfinite().all())]
            if not bad:
                return None
            self._name_data(self._batch())
            writers = [self.tracer.writer_of(gradient) for gradient in bad]
            origins = find_origins(self.tracer, [number for number in writers if number is not None])
            if not origins:
                events = [e for e in self.tracer.events if e.phase == "backward" and e.after > Health.FINITE]
                origins = find_origins(self.tracer, [event.number for event in events])
            return self._finding(origins, float(self.loss))

    def _finding(self, origins: list[Origin], loss: float) -> dict[str, Any] | None:
        if not origins:
            return None
        batch = self._batch()
        events = self.tracer.events
        trace = Trace(
            loss=loss, finite=False, origins=origins, dtypes=frozenset(event.dtype for event in events),
            tracer=self.tracer,
        )  # fmt: skip
        whole = [m for m in self.models if not inside_another(m, self.models)]
        model = Together({f"{type(m).__name__}{n}": m for n, m in enumerate(whole)}, {})
        step = Step(model=model, forward=_never, batch=batch, rng={})
        trigger = "gradient-not-finite" if math.isfinite(loss) else "loss-not-finite"
        evidence = Evidence(Readings(step, trace), {}, {}, [], Materials(trigger=trigger))
        conclusion = conclude(evidence)
        place = origin_place(origins[0])
        lines = [quoted(place)] if place[0] else []
        if conclusion.cause == "nan-loss":
            lines.append(f"Bad values begin at {origin_in_words(origins[0])}.")
        else:
            lines.append(sentence(conclusion.why))
        rows = evidence.suspects
        if rows:
            named = ", ".join(map(str, rows[:MOST_ROWS])) + (" ..." if len(rows) > MOST_ROWS else "")
            lines.append(f"It shows in row{'s' if len(rows) > 1 else ''} {named} of the batch.")
        undecided = conclusion.cause == "nan-loss"
        return {
            "cause": conclusion.cause,
            "evidence": lines,
            "place": list(place),
            "fix": "" if undecided else conclusion.fix,
            "confidence": 0.7 if undecided else conclusion.confidence,
        }

    def _batch(self) -> dict[str, Any]:
        """Data by the program's variable names, else the loader's last batch."""
        found: dict[str, Any] = {}
        for held in reversed(self.backward.at.frames):
            found |= {name: value for name, value in held.names.items() if is_data(value)}
        if not found and isinstance(self.loaded, list | tuple):
            found = {str(n): each for n, each in enumerate(self.loaded) if isinstance(each, Tensor)}
        return found

    def _name_data(self, batch: dict[str, Any]) -> None:
        """Name the program's data in the trace, whether loaded or computed within the step."""
        tracer = self.tracer
        for name, tensor in batch.items():
            number = tracer.writer_of(tensor)
            if number is None:
                continue
            if number < 0:
                tracer.leaves[number] = tracer.leaves.get(number) or f"batch.{name}"
            else:
                leaf = -1 - len(tracer.leaves)
                tracer.leaves[leaf] = f"batch.{name}"
                tracer.events[number].inputs += (leaf,)
                tracer.events[number].before += (Health.FINITE,)


def _never(_: Any) -> Tensor:
    raise RuntimeError("a step of the second run is not run again")


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
        meet_backward(self._seams, self._run_backward)
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
        with nullcontext() if self._tracer is None else self._tracer.paused():
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
