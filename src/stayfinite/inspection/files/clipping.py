"""Whether gradients are clipped, where it matters and somebody has switched it off."""

from __future__ import annotations

from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.context import CLIP
from stayfinite.rules.known import number_in

_ON_BY_DEFAULT = frozenset({"grad_clip", "clip_grad", "clip_grad_norm"})
"""Where 0 means that somebody has switched off what would have been on, as with transformers' `max_grad_norm`.
Lightning, DeepSpeed, fairseq and OpenNMT clip only when they are told to, and their recipes write the 0 down."""


def look_at_clipping(plan: Plan, notes: Notes) -> None:
    """A bound on the gradient norm, or who says that there is none."""
    setting = next((found for name in CLIP if (found := plan.find(name)) and number_in(found.value) is not None), None)
    value = None if setting is None else number_in(setting.value)
    recurrent = plan.says(r"(?:\b|_)(?:lstm|gru|rnn)(?:\b|_)")
    switched = setting is not None and setting.kind != "default"  # a script's own default switches nothing off
    by_default = setting is not None and switched and (last_step(setting) in _ON_BY_DEFAULT or plan.is_transformers)
    if setting is not None and value is not None and value <= 0 and (by_default or recurrent):
        because = "; gradients through time grow with the length" if recurrent else ""
        notes.saw("plan.clipping_off", [(f"{setting.name}: {setting.value} disables clipping{because}", setting.where)])
    called = plan.find("clip_grad_norm_", "clip_gradients", "clip_grad_value_")
    if setting is not None and value is not None and value > 0:
        seen = shown(setting)
    elif setting is not None and value is not None:
        seen = f"off: {shown(setting)}"
    elif called is not None:
        seen = f"{called.name} ({called.where})"
    else:
        seen = "default, 1.0 in transformers" if plan.is_transformers else ""
    notes.check("Clipping", "gradient clipping", "no-clipping", seen=seen, skipped="" if seen else "not set")
