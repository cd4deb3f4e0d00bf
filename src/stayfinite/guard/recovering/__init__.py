"""Actions beyond vetoes, and the snapshots and checkpoints they need."""
