"""Faults that a program's syntax tree shows as facts: outputs of width 1, inputs that hold the target, initial weights."""

from stayfinite.readers.configs.mechanisms.looking import mechanisms_in

__all__ = ["mechanisms_in"]
