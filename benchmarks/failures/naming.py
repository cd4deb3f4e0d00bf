"""Which causes a message names, for tools that know no causes. One table for all, generous where in doubt.

A tool that says where, not why, is right if the place tells the cause: ``SqrtBackward0`` tells a formula at its edge,
``MmBackward0`` tells nothing.
"""

from __future__ import annotations

import re

EDGE = ("loss-formula-singularity", "where-nan-branch", "norm-eps", "constant-feature")
EXPONENTIAL = ("naive-exp", "loss-formula-singularity", "where-nan-branch")
OVERFLOW = ("fp16-overflow", "fp16-overflow-model-family", "double-fp16", "pure-fp16-weights")

ERRORS = (
    (r"does not require grad and does not have a grad_fn", ("detached-loss", "params-frozen")),
    (r"[Tt]arget -?\d+ is out of bounds", ("label-out-of-range",)),
    (r"index out of range in self", ("token-id-out-of-range", "position-out-of-range", "label-out-of-range")),
    (r"all elements of (input|target) should be between 0 and 1", ("probability-loss-on-logits", "label-out-of-range")),
    (r"modified by an inplace operation", ("inplace-modification",)),
    (r"[Uu]nscale (FP16|float16) gradients", ("pure-fp16-weights", "double-fp16")),
    (r"type (at::)?(c10::)?Half without overflow", ("fp16-overflow",)),
    (r"same device", ("device-mismatch",)),
    (r"Expected more than 1 value per channel when training", ("last-batch-of-one",)),
    (r"None of the inputs have requires_grad", ("gradient-checkpointing-no-input-grad",)),
)
"""What torch itself says when a program falls over; everybody sees that, with or without a tool."""

BACKWARD = (
    (r"Sqrt|Rsqrt|Pow|Log(1p|2|10)?|Div|Reciprocal|Acosh?|Asin|Atan[2h]?", EDGE),
    (r"(LinalgVector|Re)?[Nn]orm|Std|Var|Cdist|Xlogy|Erfinv|Logit|Angle|Hypot|CosineSimilarity|(Cum)?[Pp]rod", EDGE),
    (r"Exp|Exp2|Expm1|Sinh|Cosh|Logsumexp|Softplus", EXPONENTIAL),
    (r"(Safe)?Softmax|LogSoftmax|ScaledDotProduct\w*", ("attention-fully-masked-row",)),
    (r"Mean|NllLoss(2D)?|NanMean", ("all-labels-masked", "empty-batch")),
    (r"Native(Layer|Batch|Group)Norm|RmsNorm", ("norm-eps", "constant-feature")),
)  # fmt: skip
"""Functions that anomaly mode names; any other tells where NaN was met and not why."""

LINE = (
    (r"\b(sqrt|rsqrt|log|log1p|log2|acos|asin|atanh|norm|std|var|pow|cdist)\(|\*\* ?0|[^/]/[^/]", EDGE),
    (r"\bexp\(", EXPONENTIAL),
)
"""The same by the forward line that anomaly mode prints: one that holds such a formula points at it."""

FRAME = (
    ("input", ("bad-data-row",)),
    ("weight", ("nan-weights", "poisoned-checkpoint")),
    ("output", (*OVERFLOW, "attention-fully-masked-row", "naive-exp", "loss-formula-singularity", "norm-eps")),
)
"""What is not finite in the last frame of DebugUnderflowOverflow: the model's input, a weight, a module's output."""

AUDIT = {
    "TA102": ("exploding-gradient", "lr-too-high"),
    "TA103": ("dead-units", "zero-gradient"),
    "TA104": ("step-missing", "params-frozen", "detached-loss", "cleared-before-step"),
    "TA105": ("dead-units",),
    "TA300": ("device-mismatch",),
    "TA301": ("unscaled-input",),
    "TA302": ("constant-feature",),
    "TA304": ("last-batch-of-one",),
    "TA305": ("token-id-out-of-range",),
    "TA500": ("unused-parameters", "unregistered-module", "params-not-in-optimizer"),
}
"""Rules of torch-audit that name a cause. TA100, "NaN or Inf Detected", names one only for a parameter."""

INVARIANTS = (
    (r"zero_grad", ("no-zero-grad", "cleared-before-step")),
    (r"\.backward", ("step-missing", "detached-loss")),
    (r"\.(eval|train)\(", ("wrong-mode",)),
    (r"Scheduler|LR\.step", ("lr-schedule-bug",)),
)
"""Calls in TrainCheck's violated invariants that tell a cause, the first that is met."""


def named_by_error(text: str) -> tuple[str, ...]:
    """The causes that an error message of torch names."""
    return next((causes for pattern, causes in ERRORS if re.search(pattern, text)), ())


def named_by_backward(text: str) -> tuple[str, ...]:
    """The causes that the function in "Function 'SqrtBackward0' returned nan values" names."""
    found = re.search(r"Function '(\w+?)Backward\d*' returned nan", text)
    if found is None:
        return ()
    function = found[1][0].upper() + found[1][1:]
    return next((causes for pattern, causes in BACKWARD if re.fullmatch(pattern, function)), ())


def named_by_line(line: str) -> tuple[str, ...]:
    """The causes that the line tells which anomaly mode prints, where its function alone tells none."""
    return next((causes for pattern, causes in LINE if re.search(pattern, line)), ())
