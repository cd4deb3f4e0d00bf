"""Turn the traced bad step into a finding: operator, line, rows and cause."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.conclusions.conclude import conclude
from stayfinite.autopsy.conclusions.conclusion import Evidence
from stayfinite.autopsy.conclusions.readings import Readings
from stayfinite.autopsy.records import origin_in_words
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.trace import Trace
from stayfinite.autopsy.tracing.events import Health
from stayfinite.autopsy.tracing.origin import Origin, find_origins
from stayfinite.autopsy.tracing.tracer import Tracer
from stayfinite.autopsy.worlds.worlds import Materials
from stayfinite.doctor.explaining import origin_place, sentence
from stayfinite.doctor.frames import short
from stayfinite.doctor.gather import Together
from stayfinite.doctor.moments import Backward
from stayfinite.doctor.slicing import source_line

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
        model = Together({f"{type(m).__name__}{n}": m for n, m in enumerate(self.models) if not self._is_part(m)}, {})
        step = Step(model=model, forward=_never, batch=batch, rng={})
        trigger = "gradient-not-finite" if math.isfinite(loss) else "loss-not-finite"
        evidence = Evidence(Readings(step, trace), {}, {}, [], Materials(trigger=trigger))
        conclusion = conclude(evidence)
        place = origin_place(origins[0])
        lines = [f"{short(place)}: {source_line(*place)}"] if place[0] else []
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

    def _is_part(self, module: nn.Module) -> bool:
        return any(other is not module and any(part is module for part in other.modules()) for other in self.models)

    def _batch(self) -> dict[str, Any]:
        """Data by the program's variable names, else the loader's last batch."""
        found: dict[str, Any] = {}
        for held in reversed(self.backward.at.frames):
            found |= {name: value for name, value in held.names.items() if _is_data(value)}
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


def _is_data(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and not value.requires_grad and value.grad_fn is None


def _never(_: Any) -> Tensor:
    raise RuntimeError("a step of the second run is not run again")
