"""Trace a step: its result, and where bad values began."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.autopsy.steps.changes import eager
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.autopsy.tracing.events import Health
from stayfinite.autopsy.tracing.looking import dense, finite_together
from stayfinite.autopsy.tracing.origin import Origin, find_origins
from stayfinite.autopsy.tracing.tracer import Tracer


@dataclass(slots=True, kw_only=True)
class Trace:
    """A traced step."""

    loss: float
    finite: bool
    bad_gradients: list[str] = field(default_factory=list)
    """Parameters with non-finite gradients; empty if the loss is bad and backward was not run."""
    origins: list[Origin] = field(default_factory=list)
    """Earliest first."""
    dtypes: frozenset[str] = frozenset()
    """Dtypes of all results."""
    uses_attention: bool = False
    """Whether a fused attention operator ran."""
    uses_dropout: bool = False
    tracer: Tracer
    """All events."""

    @property
    def origin(self) -> Origin | None:
        """The earliest origin."""
        return self.origins[0] if self.origins else None

    @property
    def module(self) -> str:
        """Path of the origin's module; empty if it is in none."""
        at = None if self.origin is None else self.origin.where
        return "" if at is None else at.module


def trace_step(step: Step) -> Trace:
    """Run the step under the tracer; everything is restored afterwards.

    If the forward pass explains a bad loss, backward is skipped: it would only spread it.
    """
    with untouched(step.model):
        batch = step.fresh_batch()
        tracer = Tracer(step.model, batch_items(batch))
        bad: dict[str, Tensor] = {}
        origins: list[Origin] = []

        def go_on(loss: Tensor) -> bool:
            with tracer.paused():
                if math.isfinite(loss.detach().float().item()):
                    return True
                origins.extend(_origins_of_loss(tracer, loss))
            return not origins

        def look() -> None:
            tracer.close()
            with tracer.paused():
                bad.update(_bad_gradients(step))

        with eager(), tracer:
            loss = step.execute(batch, look, go_on)
        value = float(loss.detach().float())
        finite = math.isfinite(value) and not bad
        if not finite and not origins:
            sinks = [] if not math.isfinite(value) else [tracer.writer_of(gradient) for gradient in bad.values()]
            written = [number for number in sinks if number is not None]
            origins = (written and find_origins(tracer, written)) or find_origins(tracer, _bad_in_backward(tracer))
        names = {event.operator for event in tracer.events}
        return Trace(
            loss=value,
            finite=finite,
            bad_gradients=list(bad),
            origins=origins,
            dtypes=frozenset(event.dtype for event in tracer.events),
            uses_attention=any("scaled_dot_product" in name or "attention" in name for name in names),
            uses_dropout=any("dropout" in name or "bernoulli" in name for name in names),
            tracer=tracer,
        )


def _bad_gradients(step: Step) -> dict[str, Tensor]:
    """Non-finite gradients by parameter name."""
    gradients = {name: p.grad for name, p in step.model.named_parameters() if p.grad is not None}
    values = [dense(gradient) for gradient in gradients.values()]
    sure = iter(finite_together([value for value in values if value.numel()]))
    return {
        name: gradient
        for (name, gradient), value in zip(gradients.items(), values, strict=True)
        if value.numel() and not next(sure) and not bool(value.isfinite().all())
    }


def _origins_of_loss(tracer: Tracer, loss: Tensor) -> list[Origin]:
    writer = tracer.writer_of(loss)
    return [] if writer is None else find_origins(tracer, [writer])


def _bad_in_backward(tracer: Tracer) -> list[int]:
    """All bad operators of the backward pass, for a gradient of unknown origin."""
    return [e.number for e in tracer.events if e.phase == "backward" and e.after > Health.FINITE]
