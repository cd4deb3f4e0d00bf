"""Gradients that do not arrive, or arrive wrong."""
