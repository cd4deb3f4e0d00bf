"""Precision: modules beyond the fp16 range, bf16 rounding, the loss scale that fp16 needs; autocast and scaler."""

import math

import torch

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import error_in_words
from stayfinite.inspection.bench.passes import one_update
from stayfinite.inspection.notes import Notes, Table
from stayfinite.inspection.probes.descent import at_planned_rate
from stayfinite.inspection.probes.operators import LARGEST
from stayfinite.inspection.probes.ranges import Overflow, Ranges, ranges_of

GROUP = "Precision"
RANGE = "range of the format"
SCALE = "loss scale"
ROUNDING = "bf16 rounding"
NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}
SHOWN = 6  # modules in the table


def look(bench: Bench, notes: Notes) -> None:
    """Run the step in fp32 and in simulated fp16, and record where they differ."""
    try:
        ranges = ranges_of(bench.lean, bench.scaler)
    except Exception as error:  # a model can raise anything
        notes.check(GROUP, RANGE, "fp16-overflow", skipped=f"the step cannot run: {error_in_words(error):.160}")
        return
    counts = {NAMES.get(dtype, str(dtype)): count for dtype, count in ranges.products.items()}
    notes.saw("training.products", counts, "one forward pass")
    precision = precision_of(bench, ranges)
    notes.saw("training.precision", precision, "precision" if bench.precision else "one forward pass")
    if not math.isfinite(ranges.loss):
        notes.check(GROUP, RANGE, "fp16-overflow", skipped=f"the loss is {ranges.loss} in fp32 too")
        return
    _note(ranges, notes)
    causes = ("fp16-overflow", "fp16-overflow-model-family")
    notes.check(GROUP, RANGE, *causes, seen=_headroom(ranges, precision))
    notes.check(GROUP, SCALE, "loss-scale-collapse", "fp16-underflow", seen=_scales(ranges))
    if ranges.loss_bf16 is not None:
        notes.check(GROUP, ROUNDING, seen=_rounding(ranges, ranges.loss_bf16))
    if ranges.modules:
        notes.tables.append(_table(ranges))


def precision_of(bench: Bench, ranges: Ranges) -> str:
    """The training's precision: as declared, else as observed, else as the scaler implies."""
    if bench.precision is not None:
        said = bench.precision.lower()
        return "bf16" if "bf" in said else "fp16" if "16" in said or "half" in said else "fp32"
    if ranges.half is not None:
        return NAMES[ranges.half]
    return "fp16" if bench.scaler is not None and bench.scaler.is_enabled() else "fp32"


def _note(ranges: Ranges, notes: Notes) -> None:
    forward = _forward(ranges)
    where = place_of(forward[0]) if forward else ""
    notes.saw("headroom.fp16_modules", [f"{place_of(each)} {_times(each.factor)}" for each in forward], where)
    if ranges.fp16_error:
        notes.saw("headroom.fp16_error", ranges.fp16_error, "one pass in fp16")
    elif not forward:
        notes.saw("headroom.largest_scale", ranges.largest_scale, "one step")
        notes.saw("headroom.lost_gradients", ranges.zero_share, f"a loss scale of {ranges.scale:g}")


def _headroom(ranges: Ranges, precision: str) -> str:
    forward = _forward(ranges)
    how = "" if ranges.mixed else ", with fp16 weights"
    if forward:
        worst = forward[0]
        count = f"{len(forward)} modules" if len(forward) > 1 else "1 module"
        would = "overflows" if precision == "fp16" else "would overflow"
        return f"safe in bf16; fp16 {would} in {count}{how}, worst {place_of(worst)}: {_times(worst.factor)}"
    if ranges.fp16_error:
        return f"safe in bf16; fp16 could not be tried ({ranges.fp16_error:.100})"
    if not ranges.modules:
        return "nothing computes in half precision"
    top = ranges.modules[0]
    share = top.activation / LARGEST
    most = f"at most {top.activation:.3g} in {top.module or 'the model itself'}"
    return f"safe in fp16 and bf16{how}: {most}, {100 * share:.2g}% of fp16's range"


def _scales(ranges: Ranges) -> str:
    if _forward(ranges):
        return "no loss scale helps when the forward pass overflows"
    least = "1" if ranges.least_scale is None else _scale(ranges.least_scale)
    if not ranges.largest_gradient:
        return "no gradient in half precision"
    lost = f"; {ranges.zero_share:.0%} of it rounds to 0 at {ranges.scale:g}" if ranges.zero_share >= 0.01 else ""
    if ranges.least_scale is not None and ranges.least_scale > ranges.largest_scale:
        return f"none works in fp16: gradients overflow above {ranges.largest_scale:g} and vanish below {least}{lost}"
    return f"for fp16 {least} to {_scale(ranges.largest_scale)}{lost}"


def _rounding(ranges: Ranges, loss: float) -> str:
    change = abs(loss - ranges.loss) / max(abs(ranges.loss), 1e-12)
    return f"loss {ranges.loss:.5g} in fp32, {loss:.5g} in bf16 ({change:.2%} apart)"


def _table(ranges: Ranges) -> Table:
    leaving = {each.module: each.factor for each in _forward(ranges)}
    rows = []
    for each in ranges.modules[:SHOWN]:
        factor = max(each.activation / LARGEST, leaving.get(each.module, 0.0))
        share = f"{_times(factor)}, overflows" if each.module in leaving else f"{factor:.2%}"
        rows.append((each.module or "the model itself", f"{each.activation:.4g}", f"{each.gradient:.3g}", share))
    columns = ("module", "largest activation", "largest gradient", "of fp16's range")
    return Table(title="fp16 ranges", columns=columns, rows=tuple(rows))


def _forward(ranges: Ranges) -> list[Overflow]:
    return [each for each in ranges.overflows if not each.backward]


def place_of(overflow: Overflow) -> str:
    """The module; for the model itself, also the operator."""
    return overflow.module or f"{overflow.operator} in the model itself"


def _scale(scale: float) -> str:
    return f"{scale:,.0f}" if 1 <= scale < 1e9 else f"{scale:g}"


def _times(factor: float) -> str:
    return f"{factor:.1f}x" if factor < 1000 else f"{factor:.1e}x"


MIXED = "Mixed precision"
AUTOCAST = "autocast"
SCALER = "gradient scaler"
CLIPPING = "clipping and unscaling order"
UPDATES = "updates of half-precision weights"


def look_at_mixed_precision(bench: Bench, notes: Notes) -> None:
    """Compare the dtypes of the forward pass with the scaler and the weights."""
    scaled = bench.working_scaler is not None
    counts = notes.observed.get("training.products")
    if counts is None:
        notes.check(MIXED, AUTOCAST, "autocast-missing", skipped="the forward pass failed")
    else:
        _look_at_autocast(bench, notes, counts.value, scaled=scaled)
    _look_at_weights(bench, notes, scaled=scaled)
    if scaled:
        reason = "the loop is not run; `stayfinite check train.py` reads it"
        notes.check(MIXED, CLIPPING, "clip-before-unscale", skipped=reason)


def _look_at_autocast(bench: Bench, notes: Notes, counts: dict[str, int], *, scaled: bool) -> None:
    halves = {name: counts[name] for name in ("fp16", "bf16") if counts.get(name)}
    told = ", ".join(f"{count} in {name}" for name, count in counts.items()) or "none"
    seen = f"matrix products in the forward pass: {told}"
    if bench.precision is not None and not halves:
        notes.check(MIXED, AUTOCAST, "autocast-missing", skipped=f"{bench.precision} is entered outside forward")
    elif scaled and any(counts.values()):
        notes.saw("autocast.half_operations", sum(halves.values()), "one forward pass")
        notes.check(MIXED, AUTOCAST, "autocast-missing", seen=seen)
    else:
        notes.check(MIXED, AUTOCAST, "autocast-missing", seen=seen if halves else f"none; {seen}")
    if "fp16" in halves:
        notes.saw("scaler.missing", not scaled and not _in_half(bench, torch.float16), "preflight(scaler=...)")
    elif "bf16" in halves:
        notes.saw("scaler.without_fp16", scaled, "preflight(scaler=...)")
    given = "no scaler" if bench.working_scaler is None else f"a scaler at {bench.working_scaler.get_scale():g}"
    in_use = " and ".join(halves) or "fp32"
    notes.check(MIXED, SCALER, "scaler-missing", "scaler-without-fp16", seen=f"{given}, computing in {in_use}")


def _look_at_weights(bench: Bench, notes: Notes, *, scaled: bool) -> None:
    notes.saw("optimizer.half_parameters_scaled", scaled and _in_half(bench, torch.float16), "param_groups")
    if not _in_half(bench, torch.bfloat16):
        return
    with at_planned_rate(bench):  # a warmup starts at 0, where every update is lost
        update = one_update(bench.optimizer, bench.trainable, bench.first, bench.kept)
    if update.error or update.lost is None:
        reason = update.error or "no half-precision weight has a gradient"
        notes.check(MIXED, UPDATES, "bf16-lost-updates", skipped=reason)
        return
    notes.saw("update.lost_share", update.lost, "one step of the optimizer")
    notes.check(MIXED, UPDATES, "bf16-lost-updates", seen=f"{update.lost:.0%} of them round to 0")


def _in_half(bench: Bench, dtype: torch.dtype) -> bool:
    """Whether the optimizer has trainable parameters of this dtype."""
    return any(p.dtype is dtype and p.requires_grad for group in bench.optimizer.param_groups for p in group["params"])
