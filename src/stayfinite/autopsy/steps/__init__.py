"""One training step: run as it was, traced, or run with a temporary change."""
