"""Faults that the course of a script shows, one module a mechanism."""

from stayfinite.readers.configs.judges.judging import faults_of_parts, script_faults

__all__ = ["faults_of_parts", "script_faults"]
