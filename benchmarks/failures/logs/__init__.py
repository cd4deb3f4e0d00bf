"""Labeled logs of real runs."""
