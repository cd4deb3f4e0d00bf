"""Report gradient clipping that was disabled where it matters."""

from __future__ import annotations

from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.context import CLIP
from stayfinite.rules.known import number_in

_ON_BY_DEFAULT = frozenset({"grad_clip", "clip_grad", "clip_grad_norm"})
"""Settings where 0 disables clipping that is on by default, like transformers' `max_grad_norm`. Lightning, DeepSpeed,
fairseq and OpenNMT clip only on request, and their recipes often spell out the 0."""


def look_at_clipping(plan: Plan, notes: Notes) -> None:
    """Record the limit of the gradient norm, or the setting that disables it."""
    setting = next((found for name in CLIP if (found := plan.find(name)) and number_in(found.value) is not None), None)
    value = None if setting is None else number_in(setting.value)
    recurrent = plan.says(r"(?:\b|_)(?:lstm|gru|rnn)(?:\b|_)")
    switched = setting is not None and setting.kind != "default"  # a script's own default does not disable it
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
