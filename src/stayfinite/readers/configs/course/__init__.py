"""A script as one course of events: how each value was computed, in which mode and in which pass of which loop.

Nothing is executed; numbers stay as they are written. `judges` says what is wrong with a course.
"""
