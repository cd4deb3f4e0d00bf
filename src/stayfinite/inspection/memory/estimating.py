"""Simulate a training step part by part to find its peak memory."""

from __future__ import annotations

from dataclasses import dataclass

from stayfinite.inspection.memory.families import layout_of
from stayfinite.inspection.memory.parts import Layout, Part
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Shape
from stayfinite.inspection.memory.weights import adapters_in, trained_bytes, weights_of

MIB = 1 << 20

WORKSPACE_HOPPER = 65 * MIB
WORKSPACE = 17 * MIB  # workspace of cuBLAS, one for the forward and one for the backward thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One training step, in bytes. Items do not peak together: `peak` is less than their sum."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    copies: int
    """Half-precision copies of the weights, made by autocast."""
    workspace: int
    peak: int
    """Corresponds to torch.cuda.max_memory_allocated."""
    moment: str
    """When the peak occurs."""
    parameters: int
    trained: int


@dataclass(slots=True)
class _Walk:
    layout: Layout
    plan: Plan
    fixed: int
    kept: int = 0
    gradients: int = 0
    peak: int = 0
    moment: str = ""
    summed: bool = False
    """Whether two gradients of a shared table have been added."""

    def note(self, more: int, moment: str) -> None:
        alive = self.fixed + self.kept + self.gradients + more
        if alive > self.peak:
            self.peak, self.moment = alive, moment


def estimate(shape: Shape, plan: Plan) -> Estimate:
    """The memory of a step, and its peak."""
    layout = layout_of(shape, plan)
    weights = weights_of(layout, plan)
    workspace = WORKSPACE_HOPPER if plan.hopper else WORKSPACE
    fixed = weights.held + weights.state + workspace + layout.always + weights.gradients * plan.accumulate
    walk = _Walk(layout=layout, plan=plan, fixed=fixed)
    copies, block = _forward(walk)
    activations = walk.kept - (0 if plan.checkpointing else copies) + block + layout.always
    _backward(walk)
    walk.kept = 0
    walk.gradients = 0 if plan.accumulate else weights.gradients
    walk.note(weights.step - layout.always, "optimizer step")
    return Estimate(
        weights=weights.held,
        gradients=weights.gradients,
        optimizer=weights.state,
        activations=activations,
        logits=max(layout.loss.forward, layout.loss.backward),
        copies=copies,
        workspace=workspace,
        peak=walk.peak,
        moment=walk.moment,
        parameters=weights.count,
        trained=weights.trained,
    )


def _forward(walk: _Walk) -> tuple[int, int]:
    """Fill `kept`. Return the bytes of all casts, and of the largest recomputed block."""
    layout, plan = walk.layout, walk.plan
    casts = again = cached = 0
    for segment in layout.segments:
        whole = sum(_kept_by(part, plan) + _casts_of(part, plan) for part in segment.parts)
        casts += segment.times * sum(_casts_of(part, plan) for part in segment.parts)
        if plan.checkpointing and segment.entry:
            walk.kept += segment.times * segment.entry
            again = max(again, whole)
            if not plan.lora:
                # Autocast caches its casts of trained weights until the forward pass ends.
                cached += segment.times * sum(_casts_of(part, plan) for part in segment.parts)
            walk.note(cached + max(_kept_by(part, plan) for part in segment.parts), "forward pass")
        else:
            walk.kept += segment.times * whole
    walk.note(cached + layout.loss.forward, "loss")
    return casts, again


def _backward(walk: _Walk) -> None:
    layout, plan = walk.layout, walk.plan
    walk.note(layout.loss.backward, "begin of backward")
    handed = layout.loss.handed_on
    for segment in reversed(layout.segments):
        for _ in range(segment.times):
            if plan.checkpointing and segment.entry:
                walk.kept += sum(_kept_by(part, plan) + _casts_of(part, plan) for part in segment.parts)
            for part in reversed(segment.parts):
                _back_through(walk, part, handed)
                handed = 0
            if plan.checkpointing and segment.entry:
                walk.kept -= segment.entry


def _back_through(walk: _Walk, part: Part, handed: int) -> None:
    plan = walk.plan
    own = 0 if plan.accumulate else trained_bytes(part, plan)
    moment = "end of backward" if part.name == "embedding" else "backward pass"
    second = 0
    if part.shares_table:
        # The second gradient is complete before it is added to the first, and the sum is a new tensor.
        second = plan.precision.stored * part.table * (1 if walk.summed else 2)
        walk.summed = True
    elif plan.accumulate:
        second = plan.precision.stored * part.table
    narrow = plan.precision.compute * part.matrices if plan.precision.autocast and part.name == "output" else 0
    walk.note(handed + part.working + (0 if plan.lora else second + narrow), moment)
    walk.kept -= _kept_by(part, plan) + _casts_of(part, plan)
    walk.gradients += own
    walk.note(handed + part.working, moment)


def _kept_by(part: Part, plan: Plan) -> int:
    if not plan.lora:
        return part.kept + part.kept_for_weights
    # Under an adapter: its input after dropout, the dropout mask, and its small inner result.
    wide = plan.precision.compute if plan.precision.autocast else 4
    inputs = sum(inputs * (1 + wide) + plan.lora * wide for inputs, _ in part.adapted)
    return part.kept + part.adapted_tokens * inputs


def _casts_of(part: Part, plan: Plan) -> int:
    """Bytes of autocast's copies of a part's matrices."""
    if not plan.precision.autocast:
        return 0
    frozen = part.matrices if plan.base == "full" or part.name == "output" else 0
    return plan.precision.compute * (frozen + adapters_in(part, plan))
