"""Post-training: signals of a step (``guard.step(loss, signals=...)``), and why sampler and trainer disagree."""

from stayfinite.rl.measuring import preference_signals, signals, value_signals
from stayfinite.rl.mismatch import Difference, Mismatch, explain_mismatch

__all__ = ["Difference", "Mismatch", "explain_mismatch", "preference_signals", "signals", "value_signals"]
