"""Faults that the course of a script shows, one module a mechanism."""

from stayfinite.readers.configs.judges.judging import script_faults

__all__ = ["script_faults"]
