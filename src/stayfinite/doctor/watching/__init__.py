"""Watching a program: a file a matter, each at its own seams of torch."""
