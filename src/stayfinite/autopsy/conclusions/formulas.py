"""Faults of a formula: an operator, or its derivative, where it is undefined or infinite."""

from __future__ import annotations

from stayfinite.autopsy.conclusions.conclusion import Conclusion, Evidence, in_rows
from stayfinite.autopsy.conclusions.readings import HUGE, WITHIN_ONE, Readings
from stayfinite.autopsy.conclusions.weights import BEFORE

ROOTS = ("sqrt", "rsqrt", "norm", "linalg_vector_norm", "cdist", "_cdist_forward", "std", "var", "hypot")
ABSURD_EXPONENT = 1e4
HOOKS = "BackwardHookFunction"
"""The function in which torch runs a module's backward hooks."""
NORMS = ("native_layer_norm", "native_batch_norm", "native_group_norm", "_fused_rms_norm", "rms_norm")
LIMITS = {"float16": 11.0, "float64": 709.0}
"""Larger exponents overflow exp; 88.7 in fp32 and bf16."""


def masked_row(e: Evidence) -> Conclusion | None:
    """Softmax over a fully masked row."""
    if not e.readings.masked_rows:
        return None
    return Conclusion(
        cause="attention-fully-masked-row",
        confidence=0.95,
        why=f"softmax over a fully masked row (all -inf){in_rows(e.suspects)}",
        fix="keep at least one key per query, or set fully masked rows to 0 after the softmax",
        worlds=("origin_guarded", "rows_removed"),
    )


def impossible_label(e: Evidence) -> Conclusion | None:
    """Loss of a label that was masked out of the logits."""
    if not e.readings.impossible_label:
        return None
    return Conclusion(
        cause="loss-formula-singularity",
        confidence=0.88,
        why=f"the label{in_rows(e.suspects, ' of ', '')} has probability 0: its logit is -inf",
        fix="mask logits with a large negative number, or exclude such labels (ignore_index)",
        worlds=("mask_finite", "rows_removed", "origin_guarded"),
        covers=("mask_finite", "rows_removed"),
    )


def norm_without_eps(e: Evidence) -> Conclusion | None:
    """Normalization of a constant without eps."""
    if e.readings.in_backward or e.readings.operator not in NORMS or e.readings.overflowed:
        return None
    if e.readings.largest_input > HUGE:  # its square overflows: another fault
        return None
    return Conclusion(
        cause="norm-eps",
        confidence=0.88,
        why=(
            f"{e.readings.operator} in {e.readings.place} divides by a variance of 0 without an "
            f"eps{in_rows(e.suspects)}"
        ),
        fix="give the normalization an eps of 1e-5 (1e-3 in fp16)",
        setting={"eps": 1e-5},
        worlds=("origin_guarded", "rows_removed"),
    )


def constant_feature(e: Evidence) -> Conclusion | None:
    """Division by a std of 0."""
    if not e.readings.constant_feature:
        return None
    if e.readings.rewards:
        return Conclusion(
            cause="grpo-zero-advantage",
            confidence=0.85,
            why=f"all rewards of a group are equal: their standard deviation is 0{in_rows(e.suspects)}",
            fix="divide by (std + 1e-4), and drop such groups: they have no gradient",
            worlds=("origin_guarded", "rows_removed"),
        )
    return Conclusion(
        cause="constant-feature",
        confidence=0.9,
        why=f"division by a standard deviation of 0{in_rows(e.suspects)}",
        fix="drop the constant feature, or divide by (std + 1e-6)",
        worlds=("origin_guarded", "rows_removed"),
    )


def spread_of_one(e: Evidence) -> Conclusion | None:
    """Std of a single value, which is 0/0."""
    readings = e.readings
    if not readings.too_few_for_a_spread:
        return None
    return Conclusion(
        cause="loss-formula-singularity",
        confidence=0.92,
        why=f"{readings.operator} of a single value in {readings.place}: the unbiased estimate is 0/0",
        fix=f"{readings.operator}(..., correction=0), or skip such batches (drop_last=True)",
        setting={"correction": 0},
        worlds=("origin_guarded",),
    )


def unused_branch(e: Evidence) -> Conclusion | None:
    """Infinite derivative in the discarded branch of torch.where."""
    if not e.readings.unused_branch:
        return None
    return Conclusion(
        cause="where-nan-branch",
        confidence=0.93,
        why=f"the gradient of {e.readings.operator} is NaN or inf in the branch that torch.where discards",
        fix="mask the input first: safe = torch.where(ok, x, 1.0); torch.where(ok, f(safe), 0.0)",
        worlds=("origin_guarded", "rows_removed"),
    )


def naive_exponential(e: Evidence) -> Conclusion | None:
    """Overflow of exp."""
    readings = e.readings
    if not readings.exponential or not readings.overflowed:
        return None
    if readings.largest_input > ABSURD_EXPONENT and any(e.good(world) for world in BEFORE):
        return None  # too large for any formula: the weights diverged
    limit = LIMITS.get(readings.dtype, 88.7)
    return Conclusion(
        cause="naive-exp",
        confidence=0.94,
        why=(
            f"{readings.operator} of {readings.largest_input:.4g} overflows {readings.dtype} (limit "
            f"exp({limit:g})){in_rows(e.suspects)}"
        ),
        fix="subtract the maximum first: torch.logsumexp, log_softmax, softplus, binary_cross_entropy_with_logits",
        worlds=("origin_guarded", "fp32", "rows_removed"),
    )


def edge(e: Evidence) -> Conclusion | None:
    """log(0), 0/0, the gradient of sqrt at 0, and similar."""
    readings = e.readings
    if not readings.at_edge:
        return None
    return Conclusion(
        cause="loss-formula-singularity",
        confidence=0.92,
        why=f"{_undefined(readings)}{in_rows(e.suspects)}",
        fix=_away(readings.operator),
        worlds=("origin_guarded", "fp32", "rows_removed"),
    )


def bad_number(e: Evidence) -> Conclusion | None:
    """A non-finite Python number, such as a loss weight."""
    if e.readings.undefined:
        return Conclusion(
            cause="loss-formula-singularity",
            confidence=0.8,
            why=f"{e.readings.reader} is undefined for its input, for example the log of a negative determinant",
            fix="keep the input valid: a positive determinant (add 1e-6 to the diagonal), or slogdet with its sign",
        )
    number = e.readings.bad_number
    if number is None:
        return None
    return Conclusion(
        cause="loss-formula-singularity",
        confidence=0.85,
        why=f"{e.readings.operator} in {e.readings.place} gets the Python number {number}",
        fix="trace that number: a count of 0, a schedule past its end, a weight never set",
    )


def custom_backward(e: Evidence) -> Conclusion | None:
    """A faulty custom backward."""
    function = e.readings.custom_function
    if not function or not e.readings.in_backward:
        return None
    if function == HOOKS:
        return Conclusion(
            cause="loss-formula-singularity",
            confidence=0.85,
            why=f"a backward hook of {e.readings.hooked} turns finite gradients into NaN or inf",
            fix="fix or remove the hook (register_full_backward_hook)",
        )
    return Conclusion(
        cause="loss-formula-singularity",
        confidence=0.93 if e.good("derived_backward") else 0.8,
        why=f"the backward of the custom autograd function {function} turns finite numbers into NaN or inf"
        + ("; autograd's own backward of its forward is finite" if e.good("derived_backward") else ""),
        fix=f"fix {function}.backward (torch.autograd.gradcheck shows where it is wrong), or remove it",
        worlds=("derived_backward", "rows_removed", "other_device"),
    )


def _undefined(readings: Readings) -> str:
    """What went wrong in a formula: a division by zero, a log of 0."""
    operator = readings.operator
    if readings.in_backward:
        at = " at 0" if operator in (*ROOTS, "sqrt", "rsqrt", "pow") else ""
        return f"the gradient of {operator} is NaN or inf{at}"
    if operator in ("div", "true_divide", "reciprocal"):
        return "division by zero (0/0)" if readings.makes_nan else "division by zero"
    if operator.startswith("log") or operator == "xlogy":
        return f"{operator} of a negative number" if readings.makes_nan else f"{operator} of 0"
    if operator in WITHIN_ONE:
        return f"{operator} of a number outside -1 to 1"
    if operator == "mul":
        return "0 times infinity"
    if operator == "mean":
        return "mean of an empty tensor (0/0)"
    if operator in ("sqrt", "rsqrt"):
        return f"{operator} of a negative number" if readings.makes_nan else f"{operator} of 0"
    return f"{operator} is undefined for its input"


def _away(operator: str) -> str:
    if operator in ("sqrt", "rsqrt"):
        return f"keep the input above 0: {operator}(x.clamp_min(0) + 1e-6); in fp16 use 1e-3"
    if operator in ROOTS:
        return f"add an epsilon inside: {operator}(x + 1e-8), in fp16 1e-4; or clamp the input"
    if operator in WITHIN_ONE:
        return f"clamp the input: {operator}(x.clamp(-1 + 1e-6, 1 - 1e-6))"
    if operator.startswith("log") or operator == "xlogy":
        return "clamp the input: log(x.clamp_min(1e-6)), or use a fused loss on logits"
    if "weight_norm" in operator:
        return "a weight row of zeros has no direction: initialize it, or remove it"
    if operator == "pow":
        return "keep the base away from 0: x.clamp_min(1e-6) ** y"
    if operator == "mul":
        return "mask with masked_fill or torch.where, not by multiplying: 0 * inf is NaN"
    if operator == "mean":
        return "skip batches with nothing to average, or divide the sum by max(1, count)"
    return "keep the denominator away from 0: x / (y + 1e-6), or x / count.clamp_min(1) for a count"
