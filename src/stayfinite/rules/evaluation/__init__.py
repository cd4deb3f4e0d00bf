"""Misleading metrics."""
