"""Faults of a whole script's updates: which weights get a gradient, who steps them, clears them, and at what rate."""

from stayfinite.readers.configs.updates.judging import update_faults

__all__ = ["update_faults"]
