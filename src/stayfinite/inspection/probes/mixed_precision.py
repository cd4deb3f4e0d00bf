"""Mixed precision: autocast active, a scaler for fp16 and none for bf16, no fp16 weights under a scaler."""

from __future__ import annotations

import torch

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.update import one_update
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes.descent import at_planned_rate

GROUP = "Mixed precision"
AUTOCAST = "autocast"
SCALER = "gradient scaler"
CLIPPING = "clipping and unscaling order"
UPDATES = "updates of half-precision weights"


def look(bench: Bench, notes: Notes) -> None:
    """Compare the dtypes of the forward pass with the scaler and the weights."""
    scaled = bench.working_scaler is not None
    counts = notes.observed.get("training.products")
    if counts is None:
        notes.check(GROUP, AUTOCAST, "autocast-missing", skipped="the forward pass failed")
    else:
        _look_at_autocast(bench, notes, counts.value, scaled=scaled)
    _look_at_weights(bench, notes, scaled=scaled)
    if scaled:
        reason = "the loop is not run; `stayfinite check train.py` reads it"
        notes.check(GROUP, CLIPPING, "clip-before-unscale", skipped=reason)


def _look_at_autocast(bench: Bench, notes: Notes, counts: dict[str, int], *, scaled: bool) -> None:
    halves = {name: counts[name] for name in ("fp16", "bf16") if counts.get(name)}
    told = ", ".join(f"{count} in {name}" for name, count in counts.items()) or "none"
    seen = f"matrix products in the forward pass: {told}"
    if bench.precision is not None and not halves:
        notes.check(GROUP, AUTOCAST, "autocast-missing", skipped=f"{bench.precision} is entered outside forward")
    elif scaled and any(counts.values()):
        notes.saw("autocast.half_operations", sum(halves.values()), "one forward pass")
        notes.check(GROUP, AUTOCAST, "autocast-missing", seen=seen)
    else:
        notes.check(GROUP, AUTOCAST, "autocast-missing", seen=seen if halves else f"none; {seen}")
    if "fp16" in halves:
        notes.saw("scaler.missing", not scaled and not _in_half(bench, torch.float16), "preflight(scaler=...)")
    elif "bf16" in halves:
        notes.saw("scaler.without_fp16", scaled, "preflight(scaler=...)")
    given = "no scaler" if bench.working_scaler is None else f"a scaler at {bench.working_scaler.get_scale():g}"
    in_use = " and ".join(halves) or "fp32"
    notes.check(GROUP, SCALER, "scaler-missing", "scaler-without-fp16", seen=f"{given}, computing in {in_use}")


def _look_at_weights(bench: Bench, notes: Notes, *, scaled: bool) -> None:
    notes.saw("optimizer.half_parameters_scaled", scaled and _in_half(bench, torch.float16), "param_groups")
    if not _in_half(bench, torch.bfloat16):
        return
    with at_planned_rate(bench):  # a warmup starts at 0, where every update is lost
        update = one_update(bench.optimizer, bench.trainable, bench.first, bench.kept)
    if update.error or update.lost is None:
        reason = update.error or "no half-precision weight has a gradient"
        notes.check(GROUP, UPDATES, "bf16-lost-updates", skipped=reason)
        return
    notes.saw("update.lost_share", update.lost, "one step of the optimizer")
    notes.check(GROUP, UPDATES, "bf16-lost-updates", seen=f"{update.lost:.0%} of them round to 0")


def _in_half(bench: Bench, dtype: torch.dtype) -> bool:
    """Whether the optimizer has trainable parameters of this dtype."""
    return any(p.dtype is dtype and p.requires_grad for group in bench.optimizer.param_groups for p in group["params"])
