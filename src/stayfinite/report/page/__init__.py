"""Self-contained HTML report of a run."""
