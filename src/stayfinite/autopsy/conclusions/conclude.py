"""Order in which causes are considered; if none is proved, say what is known and what would decide it."""

from __future__ import annotations

from stayfinite.autopsy.conclusions import data, formulas, machinery, precision, weights
from stayfinite.autopsy.conclusions.conclusion import UNDECIDED_SPIKE, Conclusion, Evidence
from stayfinite.autopsy.conclusions.weights import BEFORE
from stayfinite.autopsy.worlds.elsewhere import device_of

ORDER = (
    machinery.does_not_return,
    data.bad_item,
    weights.bad_weights,
    weights.spike,
    machinery.attention_kernel,
    machinery.compiler,
    precision.eight_bits,
    data.no_rows,
    data.nothing_to_learn,
    formulas.masked_row,
    formulas.impossible_label,
    data.too_short_for_its_label,
    formulas.custom_backward,
    formulas.norm_without_eps,
    formulas.equal_rewards,
    formulas.constant_feature,
    formulas.spread_of_one,
    formulas.unused_branch,
    formulas.naive_exponential,
    formulas.edge,
    formulas.undefined,
    formulas.bad_number,
    machinery.device,
    precision.scaled_too_far,
    precision.overflow,
    weights.driven_off,
    data.absurd_rows,
    weights.exploded,
    weights.grown,
    precision.underflow,
)
"""Deeper causes come first: a bad leaf before its effects, a formula before the format it fails in."""

UNDECIDED = "nan-loss"
"""Cause if nothing is proved."""

OF_FINITE_SPIKES = (
    data.bad_item, weights.spike, precision.eight_bits, data.absurd_rows, weights.exploded, weights.too_large_to_square,
)  # fmt: skip
"""Causes of a finite spike. Kernels and compilers draw other random numbers, so a re-run without the spike does not
prove them.
"""

OF_GOOD_STEPS = (machinery.does_not_return, precision.underflow)
"""Causes of a step that is finite when re-run."""


def conclude(evidence: Evidence) -> Conclusion:
    """The most likely cause of the step."""
    if _fine(evidence):
        return Conclusion(cause="", confidence=0.0, why="The step is finite: nothing to explain", fix="")
    order = OF_GOOD_STEPS if evidence.good("same") else OF_FINITE_SPIKES if evidence.finite_spike else ORDER
    return next((found for judge in order if (found := judge(evidence)) is not None), None) or _undecided(evidence)


def _fine(e: Evidence) -> bool:
    """Whether nothing is wrong, and nothing was reported."""
    return (
        e.good("same")
        and e.readings.origin is None
        and e.materials.trigger == "manual"
        and precision.underflow(e) is None
    )


def _undecided(e: Evidence) -> Conclusion:
    good = [name for name, is_good in e.is_good.items() if is_good]
    tried = set(e.is_good) - {"same"}
    known = f"finite with {', '.join(good)}" if good else "no change tried makes it finite"
    if not tried:
        known = "nothing could be tried in the time allowed"
    missing = [name for name in BEFORE if name not in e.is_good]
    decide = f"; not tried: {' and '.join(missing)}" if missing else ""
    if (
        "other_device" not in e.is_good
        and (here := device_of(e.readings.step.model)) is not None
        and here.type != "cpu"
    ):
        decide += f"; to test {here.type} itself: stayfinite replay --device cpu"
    if e.finite_spike:
        known = known.replace("finite", "normal")
    return Conclusion(
        cause=UNDECIDED_SPIKE.get(e.materials.trigger, UNDECIDED) if e.finite_spike else UNDECIDED,
        confidence=0.3,
        why=f"cause not proved: {known}{decide}",
        fix="try further changes: `stayfinite replay --world NAME`",
    )
