"""Ending a program from outside, without torch."""

from __future__ import annotations


class ProgramStopped(BaseException):
    """The doctor ends the program: a bad step under ``--strict``, or its time is over. Programs catch Exceptions."""
