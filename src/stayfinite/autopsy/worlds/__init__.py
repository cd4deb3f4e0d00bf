"""Worlds: the same step with exactly one thing changed."""
