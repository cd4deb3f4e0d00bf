"""Explain an incident: trace, origin, worlds (re-runs with one change), conclusions; incidents on disk and their
replay.
"""
