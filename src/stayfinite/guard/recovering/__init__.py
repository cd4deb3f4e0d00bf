"""What is done when vetoes alone do not help, and the snapshots and checkpoints that make it possible."""
