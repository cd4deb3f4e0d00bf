"""Metrics that say something else than they seem to."""
