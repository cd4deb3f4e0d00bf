"""A whole script as one course of events: how each value was computed, in which mode and in which pass of which loop.

Only scripts that consist of the standard library, torch and the usual tools are followed: in them, what is missing is
missing. Nothing is executed; numbers stay as they are written.
"""

from stayfinite.readers.configs.whole.looking import faults_of_script

__all__ = ["faults_of_script"]
