"""Faults that a syntax tree shows: one output, inputs that hold the target, unused adapters, initial weights."""

from stayfinite.readers.configs.mechanisms.looking import mechanisms_in

__all__ = ["mechanisms_in"]
