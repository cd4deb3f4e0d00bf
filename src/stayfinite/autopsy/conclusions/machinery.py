"""Faults of what runs the step: a kernel, the compiler, the hardware."""

from __future__ import annotations

from stayfinite.autopsy.conclusions.conclusion import Conclusion, Evidence


def does_not_return(e: Evidence) -> Conclusion | None:
    """The same step again is fine."""
    same = e.outcomes.get("same")
    lost = same is not None and not same.finite and not same.error
    if lost and e.readings.trace.finite and not e.good("eager"):
        again = "of several runs with the same weights, batch and random numbers, some are finite and some are not"
    elif e.good("same") and (e.materials.trigger != "manual" or not e.readings.trace.finite):
        again = "run again with the same weights, batch and random numbers, the step is finite"
    else:
        return None
    return Conclusion(
        cause="hardware",
        confidence=0.7,
        why=f"{again}: the step itself does not explain it",
        fix="look for Xid and ECC lines in the kernel log, try another device, and look for races with "
        "torch.use_deterministic_algorithms(True)",
        worlds=("same",),
    )


def attention_kernel(e: Evidence) -> Conclusion | None:
    """Only the fused attention is bad."""
    world = next((name for name in ("math_attention", "eager_attention") if e.good(name)), None)
    if world is None or e.readings.masked_rows:
        return None
    return Conclusion(
        cause="sdpa-kernel-bug",
        confidence=0.93,
        why="only the fused attention kernel is bad; the same attention by its plain formula is finite",
        fix='use another kernel: attn_implementation="eager", sdpa_kernel(SDPBackend.MATH), or a newer torch',
        setting={"attn_implementation": "eager"},
        worlds=(world,),
    )


def compiler(e: Evidence) -> Conclusion | None:
    """Only the compiled step is bad."""
    if not e.good("eager"):
        return None
    return Conclusion(
        cause="upstream-bug",
        confidence=0.85,
        why="the compiled step is bad and the same step run eagerly is finite",
        fix="leave torch.compile off for the module, or try a newer torch",
        setting={"torch_compile": False},
        worlds=("eager",),
    )
