"""Render results for people and tools. No measurement, no decisions, no torch."""
