"""Post-training: signals of a step, why sampler and trainer disagree, and actions when it goes wrong."""

from stayfinite.rl.measuring import preference_signals, signals, value_signals
from stayfinite.rl.mismatch import Difference, Mismatch, explain_mismatch
from stayfinite.rl.reference import Reference
from stayfinite.rl.steering import Rung, Steering, sound_groups

__all__ = [
    "Difference",
    "Mismatch",
    "Reference",
    "Rung",
    "Steering",
    "explain_mismatch",
    "preference_signals",
    "signals",
    "sound_groups",
    "value_signals",
]
