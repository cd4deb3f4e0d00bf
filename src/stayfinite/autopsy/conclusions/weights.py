"""Faults of the weights: already bad, or diverged by an update."""

from __future__ import annotations

import math

from stayfinite.autopsy.conclusions.conclusion import Conclusion, Evidence, in_rows
from stayfinite.autopsy.conclusions.updates import BEFORE, written_by_optimizer
from stayfinite.autopsy.steps.batch_parts import batch_size
from stayfinite.autopsy.tracing.origin import UNNAMED
from stayfinite.autopsy.worlds.worlds import too_large

EXPLODED = 1e6
"""Weights this large are not learned."""

GROWN = 1e12
"""Values this large have grown on their way through the model."""

SLOWER_GROWTH = (
    "limit growth across layers or time steps: normalization, tanh, residual branches that start small, smaller "
    "initial weights"
)


def bad_weights(e: Evidence) -> Conclusion | None:
    """A parameter or buffer is not finite before the step."""
    origin = e.readings.origin
    if origin is None or not origin.leaf or origin.leaf.startswith("batch"):
        return None
    proved = any(e.good(world) for world in BEFORE)
    if (written := written_by_optimizer(e, origin.leaf, proved=proved)) is not None:
        return written
    if origin.leaf == UNNAMED:
        return Conclusion(
            cause="nan-weights",
            confidence=0.85,
            why=(
                f"a tensor that {e.readings.reader} reads is NaN or inf; it is not a parameter, a buffer or in the "
                "batch"
            ),
            fix="find where forward gets it: class weights, a mask, precomputed statistics",
            worlds=("leaf_mended",),
        )
    undone = "; the last update wrote it" if e.good("previous_update_undone") else ""
    return Conclusion(
        cause="nan-weights",
        confidence=0.97 if proved else 0.9,
        why=f"{origin.leaf} holds NaN or inf before the step{undone}",
        fix=(
            "return to the last good checkpoint (`stayfinite scan` names it) and find the update that wrote it; "
            "stayfinite.Guard refuses such updates"
        ),
        worlds=(*BEFORE, "leaf_mended"),
        covers=BEFORE,
    )


def spike(e: Evidence) -> Conclusion | None:
    """A finite spike: caused by the batch, or by the update before it."""
    if not e.finite_spike:
        return None
    same = e.outcomes["same"]
    few = len(e.rows) * 2 <= (batch_size(e.readings.step.batch) or 0)  # a majority of rows is not an outlier
    if e.rows and few:
        return Conclusion(
            cause="toxic-batch",
            confidence=0.9 if e.bad("good_weights") else 0.8,
            why=(
                f"{in_rows(e.rows, '', '')} drive{'s' if len(e.rows) == 1 else ''} the spike: loss {same.loss:.4g}, "
                f"without {e.outcomes['rows_removed'].loss:.4g}"
            ),
            fix="skip the batch and inspect these rows",
            setting={"rows": e.rows},
            worlds=("rows_removed",),
        )
    if e.bad("good_weights"):
        return Conclusion(
            cause="toxic-batch",
            confidence=0.75,
            why=f"the batch also spikes on known-good weights (loss {e.outcomes['good_weights'].loss:.4g})",
            fix="skip the batch and inspect its rows",
        )
    return driven_off(e)


def driven_off(e: Evidence) -> Conclusion | None:
    """The step is good with earlier weights."""
    world = next((world for world in BEFORE if e.good(world)), None)
    if world is None:
        return None
    words = "with the last update undone" if world == "previous_update_undone" else "on the last known-good weights"
    return Conclusion(
        cause="lr-too-high",
        confidence=0.9,
        why=f"{words} the same batch gives loss {e.outcomes[world].loss:.4g}: the update is the cause",
        fix="lower the learning rate, add warmup, clip gradients at 1.0",
        worlds=(world,),
    )


def too_large_to_square(e: Evidence) -> Conclusion | None:
    """Finite gradients with an infinite norm, also with earlier weights."""
    same = e.outcomes.get("same")
    if same is None or not too_large(same, e.materials):
        return None
    return Conclusion(
        cause="exploding-gradient",
        confidence=0.85,
        why=(
            f"every gradient is finite, but their squares overflow fp32 (largest {same.largest:.3g}, loss "
            f"{same.loss:.4g})"
        ),
        fix=f"normalize the loss, scale inputs and targets to about unit size, {SLOWER_GROWTH}",
    )


def grown(e: Evidence) -> Conclusion | None:
    """Values that grow across layers or time steps until fp32 overflows, with small weights."""
    readings = e.readings
    if not readings.overflowed or readings.dtype not in ("float32", "bfloat16") or readings.largest_input < GROWN:
        return None
    return Conclusion(
        cause="exploding-gradient",
        confidence=0.7,
        why=(
            f"{'gradients' if readings.in_backward else 'values'} grow across layers or time steps, up to "
            f"{readings.largest_input:.3g}, until {readings.operator} in {readings.place} overflows {readings.dtype}"
        ),
        fix=SLOWER_GROWTH,
    )


def exploded(e: Evidence) -> Conclusion | None:
    """Finite but exploded weights, with nothing to go back to."""
    if not (e.readings.overflowed or e.finite_spike):
        return None
    largest, name = max(
        ((float(p.detach().abs().amax()), name) for name, p in e.readings.step.model.named_parameters() if p.numel()),
        default=(0.0, ""),
    )
    if not math.isfinite(largest) or largest < EXPLODED:
        return None
    return Conclusion(
        cause="lr-too-high",
        confidence=0.75,
        why=f"{name} reaches {largest:.3g}: the weights exploded before this step",
        fix="return to a good checkpoint, lower the learning rate, add warmup, clip gradients at 1.0",
    )
