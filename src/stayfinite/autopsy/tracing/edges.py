"""Singularities of operators and their derivatives."""

from __future__ import annotations

from stayfinite.autopsy.tracing.events import TensorLook

SINGULAR = (
    "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "div", "reciprocal", "pow", "acos", "asin", "acosh",
    "atanh", "norm", "linalg_vector_norm", "xlogy", "logit", "true_divide", "erfinv", "binary_cross_entropy",
    "lgamma", "digamma", "atan2", "std", "var", "_weight_norm_interface", "_weight_norm", "cdist",
    "_cdist_forward", "renorm", "fmod", "remainder", "kl_div", "tan", "polygamma", "prod", "linalg_inv",
    "linalg_solve", "linalg_svd", "_linalg_svd", "linalg_eigh", "_linalg_eigh", "linalg_cholesky_ex", "hypot",
)  # fmt: skip
"""Operators that have a point at which they or their derivatives are infinite or undefined."""

BELOW_ZERO = ("log", "log2", "log10", "sqrt", "rsqrt", "logit", "pow", "xlogy", "lgamma", "digamma")
"""Operators undefined below 0."""

TINY = 1e-30
"""Smaller numbers act as 0 in an fp32 division."""

WITHIN_ONE = ("acos", "asin", "atanh", "erfinv")
"""Operators defined between -1 and 1."""


def stands_at_edge(operator: str, look: TensorLook, *, backward: bool) -> bool:
    """Whether an input is at a singularity of the operator, at the positions of bad outputs if known."""
    if look.at_bad:
        return any(abs(value) < TINY or (not backward and _beyond(operator, value)) for value in look.at_bad)
    if look.zeros or 0 in look.shape:
        return True
    extremes = [value for value in (look.least, look.largest) if value is not None]
    return not backward and any(_beyond(operator, value) for value in extremes)


def _beyond(operator: str, value: float) -> bool:
    """Whether a value is outside the operator's domain, or on its border."""
    if operator in WITHIN_ONE:
        return abs(value) >= 1.0
    if operator == "log1p":
        return value <= -1.0
    return operator in BELOW_ZERO and value <= 0.0
