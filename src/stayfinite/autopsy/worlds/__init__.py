"""The same step with exactly one thing changed: the ways to change it, and how each ended."""
