"""Faults of a formula: an operator, or its derivative, where it is undefined or infinite."""

from __future__ import annotations

from stayfinite.autopsy.conclusions.conclusion import Conclusion, Evidence, judge_of
from stayfinite.autopsy.conclusions.readings import HUGE, WITHIN_ONE, Readings
from stayfinite.autopsy.conclusions.weights import BEFORE

ROOTS = ("sqrt", "rsqrt", "norm", "linalg_vector_norm", "cdist", "_cdist_forward", "std", "var", "hypot")
ABSURD_EXPONENT = 1e4
HOOKS = "BackwardHookFunction"
"""The function in which torch runs a module's backward hooks."""
NORMS = ("native_layer_norm", "native_batch_norm", "native_group_norm", "_fused_rms_norm", "rms_norm")
LIMITS = {"float16": 11.0, "float64": 709.0}
"""Larger exponents overflow exp; 88.7 in fp32 and bf16."""


@judge_of(
    "attention-fully-masked-row", 0.95,
    "keep at least one key per query, or set fully masked rows to 0 after the softmax", "origin_guarded",
    "rows_removed",
)  # fmt: skip
def masked_row(e: Evidence) -> str | bool:
    """Softmax over a fully masked row."""
    return e.readings.masked_rows and f"softmax over a fully masked row (all -inf){e.in_rows(e.suspects)}"


@judge_of(
    "loss-formula-singularity", 0.88,
    "mask logits with a large negative number, or exclude such labels (ignore_index)", "mask_finite", "rows_removed",
    "origin_guarded", covers=("mask_finite", "rows_removed"),
)  # fmt: skip
def impossible_label(e: Evidence) -> str | bool:
    """Loss of a label that was masked out of the logits."""
    why = f"the label{e.in_rows(e.suspects, ' of ', '')} has probability 0: its logit is -inf"
    return e.readings.impossible_label and why


@judge_of(
    "norm-eps", 0.88, "give the normalization an eps of 1e-5 (1e-3 in fp16)", "origin_guarded", "rows_removed",
    setting={"eps": 1e-5},
)  # fmt: skip
def norm_without_eps(e: Evidence) -> str | bool:
    """Normalization of a constant without eps. Inputs whose square overflows are another fault."""
    r = e.readings
    why = f"{r.operator} in {r.place} divides by a variance of 0 without an eps{e.in_rows(e.suspects)}"
    return not r.in_backward and r.operator in NORMS and not r.overflowed and r.largest_input <= HUGE and why


@judge_of(
    "grpo-zero-advantage", 0.85, "divide by (std + 1e-4), and drop such groups: they have no gradient",
    "origin_guarded", "rows_removed",
)  # fmt: skip
def equal_rewards(e: Evidence) -> str | bool:
    """Division of rewards by a std of 0."""
    why = f"all rewards of a group are equal: their standard deviation is 0{e.in_rows(e.suspects)}"
    return e.readings.constant_feature and e.readings.rewards and why


@judge_of(
    "constant-feature", 0.9, "drop the constant feature, or divide by (std + 1e-6)", "origin_guarded", "rows_removed"
)
def constant_feature(e: Evidence) -> str | bool:
    """Division by a std of 0."""
    return e.readings.constant_feature and f"division by a standard deviation of 0{e.in_rows(e.suspects)}"


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


@judge_of(
    "where-nan-branch", 0.93, "mask the input first: safe = torch.where(ok, x, 1.0); torch.where(ok, f(safe), 0.0)",
    "origin_guarded", "rows_removed",
)  # fmt: skip
def unused_branch(e: Evidence) -> str | bool:
    """Infinite derivative in the discarded branch of torch.where."""
    why = f"the gradient of {e.readings.operator} is NaN or inf in the branch that torch.where discards"
    return e.readings.unused_branch and why


@judge_of(
    "naive-exp", 0.94,
    "subtract the maximum first: torch.logsumexp, log_softmax, softplus, binary_cross_entropy_with_logits",
    "origin_guarded", "fp32", "rows_removed",
)  # fmt: skip
def naive_exponential(e: Evidence) -> str | bool:
    """Overflow of exp. What is too large for any formula comes from diverged weights."""
    r = e.readings
    diverged = r.largest_input > ABSURD_EXPONENT and any(e.good(world) for world in BEFORE)
    limit = f"limit exp({LIMITS.get(r.dtype, 88.7):g})"
    why = f"{r.operator} of {r.largest_input:.4g} overflows {r.dtype} ({limit}){e.in_rows(e.suspects)}"
    return r.exponential and r.overflowed and not diverged and why


def edge(e: Evidence) -> Conclusion | None:
    """log(0), 0/0, the gradient of sqrt at 0, and similar."""
    readings = e.readings
    if not readings.at_edge:
        return None
    return Conclusion(
        cause="loss-formula-singularity",
        confidence=0.92,
        why=f"{_undefined(readings)}{e.in_rows(e.suspects)}",
        fix=_away(readings.operator),
        worlds=("origin_guarded", "fp32", "rows_removed"),
    )


@judge_of(
    "loss-formula-singularity", 0.8,
    "keep the input valid: a positive determinant (add 1e-6 to the diagonal), or slogdet with its sign",
)  # fmt: skip
def undefined(e: Evidence) -> str | bool:
    """A formula that has no value for its input."""
    why = f"{e.readings.reader} is undefined for its input, for example the log of a negative determinant"
    return e.readings.undefined and why


@judge_of(
    "loss-formula-singularity", 0.85, "trace that number: a count of 0, a schedule past its end, a weight never set"
)
def bad_number(e: Evidence) -> str | bool:
    """A non-finite Python number, such as a loss weight."""
    number = e.readings.bad_number
    return number is not None and f"{e.readings.operator} in {e.readings.place} gets the Python number {number}"


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
