"""Faults that the course of a whole script shows, one module a mechanism."""

from stayfinite.readers.configs.judges.judging import faults_of_script

__all__ = ["faults_of_script"]
