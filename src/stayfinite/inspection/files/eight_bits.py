"""fp8 training: stale scales, sensitive heads, unsupported shapes."""

from __future__ import annotations

from stayfinite.core.settings import Settings
from stayfinite.inspection.files.contradictions import contradict
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan
from stayfinite.inspection.notes import Notes
from stayfinite.rules.fp8_modules import MULTIPLE, keeps_head
from stayfinite.rules.fp8_settings import BLOCKWISE, MXFP8, ROWWISE, EightBits, eight_bits_of
from stayfinite.rules.known import number_in
from stayfinite.rules.plans import Remark
from stayfinite.rules.precision.fp8_stale_scale import short_memory

_SIDES = ("hidden_size", "ffn_hidden_size", "intermediate_size", "in_features", "out_features")
_LENGTH, _BATCH = ("seq_length", "seq_len"), ("micro_batch_size", "local_batch_size")
_HISTORY = "--fp8-amax-history-len 1024 --fp8-amax-compute-algo max"


def eight_bits_in(plan: Plan) -> EightBits | None:
    """The fp8 training that the settings request, ignoring comments and notes."""
    certain = [each for each in plan.settings if not each.doubtful and each.where not in plan.switched_off]
    return eight_bits_of(Settings(certain, plan.settings.notes), words=False)


def look_at_eight_bits(plan: Plan, notes: Notes) -> None:
    """Check fp8 settings; record nothing without fp8."""
    eight = eight_bits_in(plan)
    if eight is None:
        return
    for name, remarks in (
        ("plan.fp8_stale_scale", _old_scales(plan, eight)),
        ("plan.fp8_sensitive_module", _head(plan, eight)),
        ("plan.fp8_unaligned_dims", _sides(plan, eight)),
    ):
        if remarks:
            notes.saw(name, remarks)
    gather = plan.on("enable_fsdp_float8_all_gather")
    if gather is not None and eight.scaling is not None and eight.scaling.value == ROWWISE:
        text = f"{gather.text}, and {eight.scaling.text}: torchao gathers in float8 with tensorwise scales only"
        contradict(notes, text, gather.where, "enable_fsdp_float8_all_gather = false, or recipe_name = tensorwise")
    scaling = "" if eight.scaling is None else f", {eight.scaling.value} scales"
    by = f" by {eight.library}" if eight.library else ""
    notes.check(
        "Precision",
        "fp8 scale freshness",
        "fp8-stale-scale",
        seen=f"fp8{by}{scaling} ({eight.told.where})",
    )
    notes.check("Precision", "head not in fp8", "fp8-sensitive-module")
    notes.check("Precision", "fp8 dimensions", "fp8-unaligned-dims")


def _old_scales(plan: Plan, eight: EightBits) -> list[Remark]:
    if not eight.delayed:
        return []
    # `most_recent` over a long history is a library default: a risk, but not worth a warning.
    found: list[Remark] = [(clue.text, clue.where) for clue in short_memory(eight) if "last step" not in clue.text]
    flag = plan.settings.find("fp8_format")
    megatron = flag is not None and flag.name.startswith("--fp8")
    if flag is not None and megatron and eight.history is None and eight.scaling is None:
        found.append(
            (f"{flag.name} {flag.value}, and Megatron's history has one step by default", flag.where, _HISTORY)
        )
    return found


def _head(plan: Plan, eight: EightBits) -> list[Remark]:
    titan = plan.find("converters")
    if titan is not None and (eight.kept is None or not keeps_head(eight.kept.value)):
        kept = "no filter_fqns" if eight.kept is None else eight.kept.text
        fix = 'filter_fqns = ["output"], or ["lm_head"]: as the model names its head'
        return [(f"{kept}: the head is converted to fp8 too", (eight.kept or eight.told).where, fix)]
    wide = plan.on("fp8_output_proj")
    if wide is not None:
        return [(f"{wide.text}: logits are computed in fp8", wide.where, "disable fp8_output_proj")]
    calls = [each for each in plan.settings if last_step(each) == "convert_to_float8_training" and each.value is True]
    filtered = any("convert_to_float8_training.module_filter_fn" in each.name for each in plan.settings)
    if calls and not filtered and calls[0].where not in plan.switched_off:
        fix = 'module_filter_fn=lambda module, name: name != "lm_head"'
        return [("convert_to_float8_training without module_filter_fn converts the head too", calls[0].where, fix)]
    return []


def _sides(plan: Plan, eight: EightBits) -> list[Remark]:
    """Configured shapes that do not fit. accelerate and torchtitan skip such weights, but not token counts."""
    found: list[Remark] = []
    if eight.library == "Transformer Engine" and plan.find("mixed_precision") is None:
        for name in _SIDES:
            setting = plan.find(name)
            value = None if setting is None else number_in(setting.value)
            if setting is not None and value is not None and value % MULTIPLE:
                found.append((f"{setting.name} {value:g} is not a multiple of {MULTIPLE}", setting.where))
    length, batch = plan.number(*_LENGTH), plan.number(*_BATCH)
    block = {MXFP8: 32, BLOCKWISE: 128}.get("" if eight.scaling is None else eight.scaling.value, MULTIPLE)
    if length is not None and batch is not None and (length.value * batch.value) % block:
        text = f"{length.text} x {batch.text}: {length.value * batch.value:g} tokens is not a multiple of {block}"
        found.append((text, length.where, f"use a length divisible by {block}"))
    return found
