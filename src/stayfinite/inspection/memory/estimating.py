"""Simulate a training step part by part to find its peak memory."""

import difflib
from dataclasses import dataclass

from stayfinite.errors import UsageError
from stayfinite.inspection.memory.families import Layout, Part, layout_of
from stayfinite.inspection.memory.plan import Plan, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCost:
    """The memory of one optimizer."""

    name: str
    moments: float = 0.0
    """States per weight, in the weight's dtype."""
    quantised: bool = False
    """Two 1-byte states for matrices; embeddings and small weights keep two of 4 bytes."""
    copies: float = 0.0
    """Temporary copies of all weights in a step."""
    copies_of_largest: float = 0.0
    """Temporary fp32 copies of one weight at a time."""

    def state(self, *, matrices: int, tables: int, vectors: int, stored: int) -> int:
        if self.quantised:
            # One fp32 scale per 256 elements of each state.
            return int(matrices * 2 * (1 + 4 / 256)) + 8 * (tables + vectors)
        return int(self.moments * (matrices + tables + vectors) * stored)

    def step(self, *, weights: int, largest: int, stored: int) -> int:
        """Bytes that a step needs beyond weights, gradients and states."""
        return int(self.copies * weights * stored + self.copies_of_largest * largest * 4)


OPTIMIZERS = {
    cost.name: cost
    for cost in (
        # torch's default on CUDA updates all weights at once and holds all denominators.
        OptimizerCost(name="adamw", moments=2.0, copies=1.0),
        OptimizerCost(name="adamw-fused", moments=2.0),
        OptimizerCost(name="adamw-8bit", quantised=True),
        # Only rows and columns of the second moment; updates one weight at a time in fp32.
        OptimizerCost(name="adafactor", moments=0.004, copies_of_largest=3.0),
        OptimizerCost(name="sgd", moments=1.0),
        OptimizerCost(name="sgd-plain"),
        OptimizerCost(name="lion", moments=1.0, copies_of_largest=2.0),
    )
}

_ALSO = {
    **dict.fromkeys(("adam", "adamw-torch"), "adamw"),
    **dict.fromkeys(("fused", "adamw-torch-fused"), "adamw-fused"),
    **dict.fromkeys(("adamw-bnb-8bit", "paged-adamw-8bit", "adam-8bit", "adam8bit", "adamw8bit"), "adamw-8bit"),
    "sgd-momentum": "sgd",
}


def optimizer_named(text: str) -> OptimizerCost:
    """An optimizer by its name, in transformers' spelling or ours. Raises UsageError if the name is unknown."""
    key = text.strip().lower().replace("_", "-")
    cost = OPTIMIZERS.get(_ALSO.get(key, key))
    if cost is not None:
        return cost
    close = difflib.get_close_matches(key, OPTIMIZERS, n=1)
    raise UsageError(
        f"--optimizer {text!r} is unknown" + (f"; did you mean {close[0]}?" if close else ""),
        fix=f"one of {', '.join(OPTIMIZERS)}; for another one, choose one with as many states per weight",
    )


ADAPTER = 4  # adapters are stored in fp32

_QUANTISED = {"8bit": 1.0 + 4 / 1024, "4bit": 0.5 + 4 / 64}
"""Bytes per weight: 8-bit with a scale per row, 4-bit with one per 64 elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """In bytes, except the counts."""

    count: int
    trained: int
    held: int
    gradients: int
    state: int
    step: int


def adapters_in(part: Part, plan: Plan) -> int:
    """Elements of the adapters of a part."""
    return sum(plan.lora * (inputs + outputs) for inputs, outputs in part.adapted)


def trained_bytes(part: Part, plan: Plan) -> int:
    """Bytes of the gradients that a part's backward pass creates."""
    if plan.lora:
        return ADAPTER * adapters_in(part, plan)
    return plan.precision.stored * (part.matrices + part.vectors + part.table * (not part.shares_table))


def weights_of(layout: Layout, plan: Plan) -> Weights:
    """The weights of a whole model."""
    parts = layout.parts()
    matrices = sum(part.matrices for part in parts)
    tables = sum(part.table for part in parts if not part.shares_table)
    vectors = sum(part.vectors for part in parts)
    output = sum(part.matrices for part in parts if part.name == "output")
    stored = plan.precision.stored
    optimizer = optimizer_named(plan.optimizer)
    adapters = sum(adapters_in(part, plan) for part in parts)
    largest = max(max(part.matrices // (1 if part.name == "output" else 3), part.table) for part in parts)
    whole = matrices + tables + vectors
    held = whole * stored
    if plan.base != "full":
        # Only the blocks' matrices are quantized. The rest becomes fp32 for training.
        held = int((matrices - output) * _QUANTISED[plan.base]) + (output + tables + vectors) * 4
    if plan.lora:
        state = optimizer.state(matrices=adapters, tables=0, vectors=0, stored=ADAPTER)
        step = optimizer.step(weights=adapters, largest=adapters // max(1, len(parts)), stored=ADAPTER)
        own = adapters * ADAPTER
        count, held = whole + adapters, held + own
        return Weights(count=count, trained=adapters, held=held, gradients=own, state=state, step=step)
    # If no table is separate, the output matrix is also the embedding.
    shared = 0 if tables else output
    state = optimizer.state(matrices=matrices - shared, tables=tables + shared, vectors=vectors, stored=stored)
    step = optimizer.step(weights=whole, largest=largest, stored=stored)
    return Weights(count=whole, trained=whole, held=held, gradients=held, state=state, step=step)


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
    walk.note(layout.loss.backward, "start of backward")
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
