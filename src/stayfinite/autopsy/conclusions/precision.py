"""Faults of the number format: overflow and underflow in fp16 and fp8."""

from __future__ import annotations

from typing import Any

from stayfinite.autopsy.conclusions.conclusion import Conclusion, Evidence, judge_of
from stayfinite.autopsy.conclusions.readings import FP16_LIMIT

_END = {"float8_e4m3fn": 448.0, "float8_e5m2": 57_344.0, "float8_e4m3fnuz": 240.0, "float8_e5m2fnuz": 57_344.0}
"""Largest number of each format."""


@judge_of(
    "fp16-overflow", 0.93, "let torch.amp.GradScaler lower the scale, or use bf16", "small_loss_scale", "bf16", "fp32",
    covers=("small_loss_scale", "bf16"), setting={"loss_scale": 1.0},
)  # fmt: skip
def scaled_too_far(e: Evidence) -> str | bool:
    """A gradient that overflows only because of the loss scale."""
    overflows = f"a gradient in {e.readings.place} overflows fp16 at loss scale {e.readings.step.scale:g}"
    return e.readings.in_backward and e.good("small_loss_scale") and f"{overflows}; at scale 1 it is finite"


def overflow(e: Evidence) -> Conclusion | None:
    """A value too large for fp16 but not for fp32."""
    readings = e.readings
    helped = [name for name in ("bf16", "fp32", "origin_fp32") if e.good(name)]
    if readings.origin is None or not helped:
        return None
    if readings.dtype == "bfloat16":
        return Conclusion(
            cause="loss-formula-singularity",
            confidence=0.7,
            why=f"{readings.operator} in {readings.place} is finite in fp32 but not in bf16 (8-bit precision)",
            fix=f"compute {readings.place} in fp32: torch.autocast(..., enabled=False)",
            setting={"fp32_module": readings.place},
            worlds=("origin_fp32", "fp32"),
            covers=("origin_fp32", "fp32"),
        )
    if readings.dtype != "float16" and not e.good("fp32"):
        return None
    beyond = e.reached is not None and e.reached > FP16_LIMIT
    size = f"reaches {e.reached:,.0f}" if beyond else "overflows"
    subject = f"{readings.operator} in {readings.place}"
    if readings.operator == "_to_copy":  # a cast: report what was cast
        subject, size = f"a cast in {readings.place}", f"gets {readings.largest_input:,.0f}"
        if readings.first_input:
            subject = f"{readings.first_input}, cast in {readings.place},"
    finite = " and ".join(name for name in ("bf16", "fp32") if e.good(name)) or "fp32 in that module"
    setting: dict[str, Any] = {"bf16": True, "fp16": False} if e.good("bf16") else {"fp16": False}
    module = f" or keep {readings.place} in fp32" if e.good("origin_fp32") else " or fp32"
    return Conclusion(
        cause="fp16-overflow",
        confidence=0.96 if e.good("fp32") else 0.85,
        why=f"{subject} {size} in fp16 (limit {FP16_LIMIT:,.0f}); the same step is "
        f"finite in {finite}{e.in_rows(e.rows, '; driven by ', '')}",
        fix=f"use bf16 (bf16=True, fp16=False){module}",
        setting=setting,
        worlds=("bf16", "origin_fp32", "fp32", "rows_removed"),
        covers=("bf16", "origin_fp32", "fp32"),
    )


@judge_of(
    "fp16-underflow", 0.92, "scale the loss (torch.amp.GradScaler), or use bf16", "large_loss_scale", "bf16", "fp32",
    covers=("large_loss_scale", "bf16"), setting={"loss_scale": 65536.0},
)  # fmt: skip
def underflow(e: Evidence) -> str | bool:
    """Gradients that fp16 rounds to 0."""
    same, full = e.outcomes.get("same"), e.outcomes.get("fp32")
    if same is None or full is None or not same.finite or not full.finite or full.zero_share + 0.2 > same.zero_share:
        return False
    return f"{same.zero_share:.0%} of the gradients are exactly 0 in fp16 ({full.zero_share:.0%} in fp32)"


def eight_bits(e: Evidence) -> Conclusion | None:
    """A step that fails in fp8 and is good with the same layers in bf16."""
    if not e.good("module_bf16") or not _much_better(e):
        return None
    readings, modules = e.readings, e.modules.get("module_bf16", ())
    named = ", ".join(modules[:3]) + (f" and {len(modules) - 3} more" if len(modules) > 3 else "")
    usual = "finite" if not e.finite_spike else "normal"
    if "float8" in readings.dtype and readings.largest_input > _END[readings.dtype]:
        # A scale computed from the tensor itself keeps its largest value in range.
        return Conclusion(
            cause="fp8-stale-scale",
            confidence=0.93,
            why=(
                f"{named} casts {readings.largest_input:,.0f} to {readings.dtype} (limit "
                f"{_END[readings.dtype]:,.0f}) with a stale scale; in bf16 the step is {usual}"
            ),
            fix=f"compute the scale from the tensor itself or a longer history, or keep {named} in bf16",
            setting={"bf16_modules": list(modules)},
            worlds=("module_bf16",),
            covers=("module_bf16",),
        )
    rows = e.good("rowwise_scale")
    also = ", and with rowwise scales" if rows else ""
    but = "; rowwise scales do not help" if e.bad("rowwise_scale") else ""
    return Conclusion(
        cause="fp8-saturation",
        confidence=0.95 if rows or but else 0.85,
        why=f"the step is {usual} with {named} in bf16{also}{but}: one fp8 scale cannot hold its values",
        fix=f'use rowwise scales (recipe "rowwise"), or keep {named} in bf16' if rows else f"keep {named} in bf16",
        setting={"float8_recipe": "rowwise"} if rows else {"bf16_modules": list(modules)},
        worlds=("rowwise_scale", "module_bf16") if rows else ("module_bf16",),
        covers=("rowwise_scale", "module_bf16"),
    )


def _much_better(e: Evidence) -> bool:
    """Whether bf16 removes a spike, rather than moving it just below its limit."""
    same, other = e.outcomes.get("same"), e.outcomes["module_bf16"]
    if not e.finite_spike or same is None:
        return True
    return other.grad_norm <= same.grad_norm / 2 or other.loss <= same.loss / 2
